import { Button, FileButton, Group, Textarea } from '@mantine/core';
import { useMutation, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { changed } from '~/api/changes';
import { api, body } from '~/api/client';
import { ProblemError, sentence } from '~/api/problem';
import type { ImportedUsers } from '~/api/types';
import { Dialog } from '~/components/Dialog';
import { IconUpload } from '~/components/icons';
import { done } from '~/components/toast';
import { plural } from '~/domain/format';
import { lineErrors } from './lines';
import styles from './Users.module.css';

interface Props {
  tenant: string;
  onClose: () => void;
}

/** Imports plan assignments from CSV: a dry run first, then all or nothing. */
export function ImportUsers({ tenant, onClose }: Props) {
  const [text, setText] = useState('');
  const queries = useQueryClient();

  const check = useMutation({ mutationFn: (csv: string) => send(tenant, csv, true) });
  const load = useMutation({
    mutationFn: (csv: string) => send(tenant, csv, false),
    onSuccess: async (result) => {
      await changed(queries, tenant, 'user');
      done(`${plural(result.changed, 'user')} changed plan`);
      onClose();
    },
  });
  function change(csv: string) {
    setText(csv);
    check.reset();
    load.reset();
  }
  async function read(file: File | null) {
    if (!file) return;
    const csv = await file.text();
    change(csv);
    check.mutate(csv);
  }
  const error = load.error ?? check.error;

  return (
    <Dialog onClose={onClose} size={560} title="Import plans" pending={load.isPending}>
      <div className={styles.form}>
        <p className="soft">
          A CSV file with the header <code>user_id,plan</code> and one user per line. Leave the plan empty for
          the default plan. You can review the changes before they are saved.
        </p>
        <FileButton accept="text/csv,.csv" onChange={read}>
          {(props) => (
            <Button
              {...props}
              variant="default"
              leftSection={<IconUpload size={14} />}
              className={styles.file}
            >
              Choose a file
            </Button>
          )}
        </FileButton>
        <Textarea
          label="Or paste CSV"
          value={text}
          onChange={(event) => change(event.currentTarget.value)}
          placeholder={'user_id,plan\n42,pro\n43,'}
          rows={7}
          spellCheck={false}
          styles={{ input: { fontFamily: 'var(--mantine-font-family-monospace)', fontSize: 12 } }}
        />
        {check.data && <WouldChange result={check.data} />}
        {error && <Errors error={error} text={text} />}
        <Group justify="flex-end">
          <Button variant="default" onClick={onClose}>
            Cancel
          </Button>
          {check.data && check.data.changed > 0 ? (
            <Button loading={load.isPending} onClick={() => load.mutate(text)}>
              Change {plural(check.data.changed, 'user')}
            </Button>
          ) : (
            <Button
              disabled={text.trim() === ''}
              loading={check.isPending}
              onClick={() => check.mutate(text)}
            >
              Review changes
            </Button>
          )}
        </Group>
      </div>
    </Dialog>
  );
}

function WouldChange({ result: { lines, changed } }: { result: ImportedUsers }) {
  return (
    <p className={styles.effect} role="status">
      The file lists {plural(lines, 'user')}.{' '}
      {changed === 0
        ? 'All of them are already on these plans.'
        : `${plural(changed, 'user')} will change plan.`}
    </p>
  );
}

/** The errors with their lines. */
function Errors({ error, text }: { error: unknown; text: string }) {
  const found = error instanceof ProblemError ? lineErrors(error.document, text) : [];
  return (
    <div role="alert">
      <p style={{ color: 'var(--denied)' }}>
        {found.length > 0 ? `Nothing was changed: ${plural(found.length, 'error')}.` : sentence(error)}
      </p>
      {found.length > 0 && (
        <table className={styles.lines}>
          <thead>
            <tr>
              <th scope="col">Line</th>
              <th scope="col">Content</th>
              <th scope="col">Error</th>
            </tr>
          </thead>
          <tbody>
            {found.slice(0, 50).map(({ line, content, detail }) => (
              <tr key={`${line} ${detail}`}>
                <td className="numeric">{line}</td>
                <td>
                  <code>{content}</code>
                </td>
                <td>{detail}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {found.length > 50 && <p className="soft">and {found.length - 50} more</p>}
    </div>
  );
}

function send(tenant: string, csv: string, dry_run: boolean): Promise<ImportedUsers> {
  return body(
    api.POST('/api/v1/tenants/{tenant}/users/import', {
      params: { path: { tenant }, query: { dry_run } },
      body: csv,
      bodySerializer: (text) => text,
      headers: { 'Content-Type': 'text/csv' },
    }),
  );
}
