import { Button } from '@mantine/core';
import { useMutation } from '@tanstack/react-query';
import { useEffect, useState } from 'react';
import { ProblemError, sentence } from '~/api/problem';
import { Dialog } from './Dialog';
import { DialogButtons } from './DialogButtons';
import styles from './FormDialog.module.css';

/** Returns the error of the field at a JSON pointer: `error={wrong('/name')}`. */
export type Wrong = (pointer: string) => string | undefined;

/** Call `rest()` last: it returns the errors that no field asked for. */
export function fieldErrors(error: unknown): { wrong: Wrong; rest: () => string | null } {
  const asked = new Set<string>();
  const wrong = (pointer: string) => {
    asked.add(pointer);
    return error instanceof ProblemError ? error.field(pointer) : undefined;
  };
  const rest = () => {
    if (!error) return null;
    const errors = (error instanceof ProblemError && error.document.errors) || [];
    if (errors.length === 0) return sentence(error);
    const others = errors.filter(({ pointer }) => !asked.has(pointer));
    return others.map(({ pointer, detail }) => `${pointer.slice(1)} ${detail}`).join('; ') || null;
  };
  return { wrong, rest };
}

export function submits(act: () => void) {
  return (event: React.FormEvent) => {
    event.preventDefault();
    act();
  };
}

export function FormError({ children }: { children: string | null }) {
  return children ? (
    <p role="alert" className={styles.error}>
      {children}
    </p>
  ) : null;
}

/** Rendered after the fields, which ask for their errors. */
export function Rest({ rest }: { rest: () => string | null }) {
  return <FormError>{rest()}</FormError>;
}

interface Props {
  title: string;
  lead?: React.ReactNode;
  verb: string;
  size?: number;
  disabled?: boolean;
  invalid?: boolean;
  destructive?: boolean;
  cancel?: string;
  others?: React.ReactNode;
  /** The dialogs that this one opens; a form must not contain another. */
  beside?: React.ReactNode;
  onClose: () => void;
  onSaved?: () => void;
  /** False: something is left to save. */
  save: () => Promise<unknown>;
  children: React.ReactNode | ((wrong: Wrong, error: unknown) => React.ReactNode);
}

export function FormDialog(props: Props) {
  const { title, lead, verb, size = 480, disabled, invalid, destructive, cancel = 'Cancel', others } = props;
  const { onClose, onSaved = onClose, save, beside, children } = props;
  const [focused, setFocused] = useState<Element | null>(null);
  const saving = useMutation({ mutationFn: save, onSuccess: (isSaved) => isSaved !== false && onSaved() });
  const { wrong, rest } = fieldErrors(saving.error);
  const fields = typeof children === 'function' ? children(wrong, saving.error) : children;
  // A locked field loses the focus.
  useEffect(() => {
    if (!saving.isPending && focused instanceof HTMLElement && document.activeElement === document.body)
      focused.focus();
  }, [saving.isPending, focused]);
  return (
    <Dialog onClose={onClose} size={size} title={title} pending={saving.isPending}>
      <form
        className={styles.form}
        onSubmit={(event) => {
          event.preventDefault();
          setFocused(document.activeElement);
          if (invalid) event.currentTarget.querySelector<HTMLElement>('[aria-invalid="true"]')?.focus();
          else saving.mutate();
        }}
      >
        <fieldset className={styles.lock} disabled={saving.isPending}>
          {lead && <p className="soft">{lead}</p>}
          {fields}
          <Rest rest={rest} />
          <DialogButtons>
            <Button variant="default" onClick={onClose}>
              {cancel}
            </Button>
            {others}
            <Button
              type="submit"
              color={destructive ? 'red.8' : undefined}
              loading={saving.isPending}
              disabled={disabled}
            >
              {verb}
            </Button>
          </DialogButtons>
        </fieldset>
      </form>
      {beside}
    </Dialog>
  );
}
