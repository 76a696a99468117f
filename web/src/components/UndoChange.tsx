import { useQuery, useQueryClient } from '@tanstack/react-query';
import { changed } from '~/api/changes';
import { api } from '~/api/client';
import { serverNow } from '~/api/clock';
import { ProblemError } from '~/api/problem';
import type { AuditEntry } from '~/api/types';
import { type ChangeOf, changeQuery, undoOf } from '~/api/undo';
import { changesOf, isUndo, type Names, objectOf } from '~/domain/audit';
import { plural, shortTime } from '~/domain/format';
import { hasExpired } from '~/domain/group';
import { FormDialog } from './FormDialog';
import { Query } from './Query';
import { done } from './toast';
import styles from './UndoChange.module.css';

interface Props {
  tenant: string;
  of: ChangeOf;
  names?: Names;
  onClose: () => void;
}

export default function UndoChange({ tenant, of, names, onClose }: Props) {
  const queries = useQueryClient();
  const change = useQuery(changeQuery(tenant, of));
  const entries = change.data?.items ?? [];
  const [latest] = entries;
  const count = entries.reduce((sum, { row_count = 1 }) => sum + row_count, 0);
  const verb = latest && isUndo(latest) ? 'Redo' : 'Undo';

  async function undo() {
    if (!latest) return;
    const params = { tenant, audit_id: latest.audit_id, ...('audit_id' in of ? { row: of.row } : { whole: true }) };
    const undone = await api.post('/api/v1/tenants/{tenant}/audit/{audit_id}/revert', params).catch((error) => {
      throw clashOf(error, entries, names);
    });
    await changed(queries, tenant, ...new Set(entries.map(({ object }) => object.kind)));
    done('Change undone. It takes effect within 2 s', undoOf(tenant, undone));
  }

  const more = change.data?.next_cursor ? ' or more' : '';
  return (
    <FormDialog
      title={`${verb} ${count > 1 ? `${plural(count, 'change')}${more}` : 'this change'}?`}
      verb={verb}
      disabled={!latest}
      save={undo}
      onClose={onClose}
    >
      <Query query={change}>
        {({ items }) =>
          items.length === 0 ? (
            <p className="soft">This save changed nothing.</p>
          ) : (
            <ul className={styles.changes} aria-label="What returns">
              {items.map((entry) => (
                <li key={entry.audit_id}>
                  <Returns entry={entry} names={names} />
                </li>
              ))}
            </ul>
          )
        }
      </Query>
    </FormDialog>
  );
}

function Returns({ entry, names }: { entry: AuditEntry; names?: Names }) {
  const object = objectOf(entry, names);
  if (entry.row_count ? entry.action === 'create' : !entry.before) return `Removes ${object}`;
  if (entry.row_count ? entry.action === 'remove' : !entry.after) return `Restores ${object}${ended(entry)}`;
  if (entry.row_count) return `Restores the values of ${object}`;
  return (
    <>
      <span className="soft">{object}</span>
      {changesOf(entry).map(({ field, before, after }) => (
        <span key={field} className={styles.value}>
          {field}: <del>{after ?? '–'}</del> → <strong>{before ?? '–'}</strong>
        </span>
      ))}
    </>
  );
}

function ended({ before }: AuditEntry): string {
  const end = before?.expires_at;
  return typeof end === 'string' && hasExpired({ expires_at: end }, serverNow())
    ? `, which ended at ${shortTime(Date.parse(end))} and has no effect`
    : '';
}

function clashOf(error: unknown, entries: AuditEntry[], names?: Names): unknown {
  if (!(error instanceof ProblemError) || error.status !== 409 || !error.document.errors) return error;
  const clashes = error.document.errors.map(({ pointer, detail }) => {
    const [, , id, , row] = pointer.split('/');
    const entry = entries.find(({ audit_id }) => id === String(audit_id));
    const place = row && entry?.row_count ? `row ${row} of ` : '';
    return `${entry ? `${place}${objectOf(entry, names)}` : pointer.slice(1)} ${detail}`;
  });
  return new Error(`Nothing was undone: ${clashes.join('; ')}.`);
}
