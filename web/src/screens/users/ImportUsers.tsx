import { Button, FileButton, Textarea } from '@mantine/core';
import { useQueryClient } from '@tanstack/react-query';
import { useRef, useState } from 'react';
import { flushSync } from 'react-dom';
import { changed } from '~/api/changes';
import { api } from '~/api/client';
import { ProblemError } from '~/api/problem';
import type { ImportedUsers } from '~/api/types';
import { FormDialog } from '~/components/FormDialog';
import { IconUpload } from '~/components/icons';
import { done } from '~/components/toast';
import { plural } from '~/domain/format';
import { type LineError, lineErrors } from './lines';
import styles from './Users.module.css';

interface Props {
  tenant: string;
  onClose: () => void;
}

export function ImportUsers({ tenant, onClose }: Props) {
  const [text, setText] = useState('');
  const queries = useQueryClient();

  const [checked, setChecked] = useState<ImportedUsers | null>(null);
  const [errors, setErrors] = useState<LineError[]>([]);
  const area = useRef<HTMLTextAreaElement>(null);

  function change(csv: string) {
    setText(csv);
    setChecked(null);
    setErrors([]);
  }
  async function read(file: File) {
    const csv = await file.text();
    flushSync(() => change(csv));
    area.current?.form?.requestSubmit();
  }
  async function save() {
    const isReviewed = checked !== null && checked.changed > 0;
    const result = await send(tenant, text, !isReviewed).catch((error) => {
      const found = error instanceof ProblemError ? lineErrors(error.document, text) : [];
      setErrors(found);
      if (found.length === 0) throw error;
      return null;
    });
    if (!result) return false;
    if (!isReviewed) {
      setChecked(result);
      return false;
    }
    await changed(queries, tenant, 'user');
    done(`${plural(result.changed, 'user')} changed plan`);
  }

  return (
    <FormDialog
      onClose={onClose}
      size={560}
      title="Import plans"
      verb={checked && checked.changed > 0 ? `Change ${plural(checked.changed, 'user')}` : 'Review changes'}
      disabled={text.trim() === ''}
      save={save}
    >
      <p className="soft">
        One user per line below the header <code>user_id,plan</code>; an empty plan is the default.
      </p>
      <FileButton accept="text/csv,.csv" onChange={(file) => file && read(file)}>
        {(props) => (
          <Button {...props} variant="default" leftSection={<IconUpload size={14} />} className={styles.file}>
            Choose a file
          </Button>
        )}
      </FileButton>
      <Textarea
        ref={area}
        label="Or paste CSV"
        value={text}
        onChange={(event) => change(event.currentTarget.value)}
        placeholder={'user_id,plan\n42,pro\n43,'}
        rows={7}
        spellCheck={false}
        styles={{ input: { fontFamily: 'var(--mantine-font-family-monospace)', fontSize: 12 } }}
      />
      {checked && <WouldChange result={checked} />}
      {errors.length > 0 && <Errors found={errors} />}
    </FormDialog>
  );
}

function WouldChange({ result: { lines, changed } }: { result: ImportedUsers }) {
  return (
    <p className={styles.effect} role="status">
      The file lists {plural(lines, 'user')}.{' '}
      {changed === 0 ? 'All of them are already on these plans.' : `${plural(changed, 'user')} will change plan.`}
    </p>
  );
}

function Errors({ found }: { found: LineError[] }) {
  return (
    <div role="alert">
      <p style={{ color: 'var(--denied)' }}>Nothing was changed: {plural(found.length, 'error')}.</p>
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
      {found.length > 50 && <p className="soft">and {found.length - 50} more</p>}
    </div>
  );
}

function send(tenant: string, csv: string, dry_run: boolean): Promise<ImportedUsers> {
  return api.post('/api/v1/tenants/{tenant}/users/import', {
    tenant,
    dry_run,
    body: csv,
    bodySerializer: (text) => text,
    headers: { 'Content-Type': 'text/csv' },
  });
}
