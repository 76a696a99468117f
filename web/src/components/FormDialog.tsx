import { Button } from '@mantine/core';
import { useMutation } from '@tanstack/react-query';
import { ProblemError, sentence } from '~/api/problem';
import { Dialog } from './Dialog';
import { DialogButtons } from './DialogButtons';
import styles from './FormDialog.module.css';

/** Returns the error of the field at a JSON pointer: `error={wrong('/name')}`. */
export type Wrong = (pointer: string) => string | undefined;

/**
 * Splits an error into field errors and the rest. Call `rest()` last: it returns the errors that no field
 * asked for.
 */
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

/** An error of the form as a whole. */
export function FormError({ children }: { children: string | null }) {
  return children ? (
    <p role="alert" className={styles.error}>
      {children}
    </p>
  ) : null;
}

interface Props {
  title: string;
  /** One sentence: what this does. */
  lead?: React.ReactNode;
  /** The verb on the button: "Create key". */
  verb: string;
  size?: number;
  disabled?: boolean;
  destructive?: boolean;
  onClose: () => void;
  /** Runs after a save; closes the dialog by default. */
  onSaved?: () => void;
  /** Saves. If it fails, the dialog stays open and shows why. */
  save: () => Promise<unknown>;
  children: (wrong: Wrong) => React.ReactNode;
}

/** A form in a dialog. It closes on success and keeps the input on failure. */
export function FormDialog(props: Props) {
  const { title, lead, verb, size = 480, disabled, destructive, onClose, onSaved = onClose, save } = props;
  const saving = useMutation({ mutationFn: save, onSuccess: onSaved });
  const { wrong, rest } = fieldErrors(saving.error);
  const fields = props.children(wrong);
  return (
    <Dialog onClose={onClose} size={size} title={title} pending={saving.isPending}>
      <form
        className={styles.form}
        onSubmit={(event) => {
          event.preventDefault();
          saving.mutate();
        }}
      >
        {lead && <p className="soft">{lead}</p>}
        {fields}
        <FormError>{rest()}</FormError>
        <DialogButtons>
          <Button variant="default" onClick={onClose} disabled={saving.isPending}>
            Cancel
          </Button>
          <Button
            type="submit"
            color={destructive ? 'red.8' : undefined}
            loading={saving.isPending}
            disabled={disabled}
          >
            {verb}
          </Button>
        </DialogButtons>
      </form>
    </Dialog>
  );
}
