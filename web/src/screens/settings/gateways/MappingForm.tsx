import { Button, Group, SegmentedControl, Textarea } from '@mantine/core';
import { useNavigate } from '@tanstack/react-router';
import { useState } from 'react';
import { isStatus } from '~/api/problem';
import { ConflictDialog } from '~/components/ConflictDialog';
import { FormError, fieldErrors, type Wrong } from '~/components/FormDialog';
import { Leaving } from '~/components/Leaving';
import { Card } from '~/components/Page';
import styles from './Gateways.module.css';
import type { Kind } from './kinds';
import type { MappingEditor } from './useMappingEditor';

interface Props<M extends object, D> {
  kind: Kind<M, D>;
  editor: MappingEditor<M, D>;
  lead: string;
  json: boolean;
  /** The fields of the form. */
  fields: (props: { draft: D; wrong: Wrong; onChange: (draft: D) => void }) => React.ReactNode;
  /** The button that removes the mapping. */
  remove: React.ReactNode;
  /** Closes the form of a mapping that was never saved. */
  onCancel?: () => void;
}

/** Edits the mapping in a form or as JSON. A lost race shows both versions. */
export function MappingForm<M extends object, D>(props: Props<M, D>) {
  const { kind, editor, lead, json, remove, onCancel } = props;
  const navigate = useNavigate();
  const [tried, setTried] = useState(false);
  const { draft, saving, theirs, mapping } = editor;
  const missing = json ? {} : kind.incomplete(draft);
  const errors = fieldErrors(isStatus(saving.error, 412) ? null : saving.error);
  const wrong: Wrong = (pointer) => errors.wrong(pointer) ?? (tried ? missing[pointer] : undefined);
  // The fields ask when they are drawn, which is after `rest`.
  if (!json) for (const pointer of kind.pointersOf(draft)) errors.wrong(pointer);
  const fields = json ? null : props.fields({ draft, wrong, onChange: editor.setDraft });
  const before = theirs ? kind.described(theirs.value.mapping) : {};
  const after = mapping ? kind.described(mapping) : {};

  return (
    <Card
      title="Mapping"
      lead={lead}
      actions={
        <SegmentedControl
          size="xs"
          aria-label="Edit as"
          data={[
            { value: 'form', label: 'Form', disabled: json && !editor.canForm },
            { value: 'json', label: 'JSON' },
          ]}
          value={json ? 'json' : 'form'}
          onChange={(view) =>
            navigate({
              to: '.',
              search: (old: object) => ({ ...old, view: view === 'json' ? view : undefined }),
              replace: true,
              resetScroll: false,
            })
          }
        />
      }
    >
      <form
        className={styles.stack}
        onSubmit={(event) => {
          event.preventDefault();
          setTried(true);
          if (mapping && Object.keys(missing).length === 0) editor.save();
        }}
      >
        {fields ?? (
          <Textarea
            label="Mapping as JSON"
            description={
              editor.canForm || editor.textError
                ? undefined
                : 'The form cannot show all of this: keep to JSON'
            }
            autosize
            minRows={12}
            maxRows={32}
            spellCheck={false}
            classNames={{ input: styles.code }}
            value={editor.text}
            error={editor.textError}
            onChange={(event) => editor.setText(event.currentTarget.value)}
          />
        )}
        <FormError>{errors.rest()}</FormError>
        <Group gap={8}>
          <Button type="submit" disabled={!editor.dirty || !mapping} loading={saving.isPending}>
            Save
          </Button>
          {editor.dirty && !onCancel && (
            <Button variant="default" onClick={editor.discard}>
              Discard edits
            </Button>
          )}
          {onCancel && (
            <Button variant="default" onClick={onCancel}>
              Cancel
            </Button>
          )}
          {remove}
        </Group>
      </form>
      <Leaving when={editor.dirty} what="Your changes" />
      <ConflictDialog
        opened={theirs !== null}
        what="this mapping"
        versions={[...new Set([...Object.keys(after), ...Object.keys(before)])].map((label) => ({
          label,
          mine: after[label] ?? '–',
          theirs: before[label] ?? '–',
        }))}
        onKeepMine={editor.keepMine}
        onTakeTheirs={editor.takeTheirs}
        onClose={editor.keepEditing}
      />
    </Card>
  );
}
