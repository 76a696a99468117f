import { Button } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { api } from '~/api/client';
import { tenantKey } from '~/api/queries';
import type { AuditEntry } from '~/api/types';
import { changeQuery, entryQuery, unpacked } from '~/api/undo';
import { Facts } from '~/components/Facts';
import { IconUndo } from '~/components/icons';
import { LinkButton } from '~/components/LinkButton';
import { Query } from '~/components/Query';
import { ShowMore } from '~/components/ShowMore';
import { SidePanel } from '~/components/SidePanel';
import { LoadingLines } from '~/components/states';
import { RelativeTime } from '~/components/Time';
import UndoChange from '~/components/UndoChange';
import { actorOf } from '~/domain/actor';
import {
  type Change,
  causeOf,
  changesOf,
  changeText,
  isAsLeft,
  isUndo,
  objectOf,
  revertable,
  undoes,
  verbOf,
} from '~/domain/audit';
import { exactTime } from '~/domain/format';
import { useRole } from '~/session';
import styles from './Audit.module.css';
import { useNames } from './names';

interface Props {
  tenant: string;
  id?: string;
  /** The id of the object that a packed entry is opened for; undefined: all its rows. */
  object?: string;
  onClose: () => void;
}

export function EntryPanel({ tenant, id, object, onClose }: Props) {
  const entry = useQuery({ ...entryQuery(tenant, id ?? ''), enabled: id !== undefined });
  const { isPending } = useNames(tenant); // they make the first sentence longer
  return (
    <SidePanel opened={id !== undefined} onClose={onClose} title="Change">
      {id !== undefined &&
        (isPending ? (
          <LoadingLines />
        ) : (
          <Query query={entry}>
            {(found) => (
              <Entry tenant={tenant} entry={unpacked(found).find((row) => row.object.id === object) ?? found} />
            )}
          </Query>
        ))}
    </SidePanel>
  );
}

function Entry({ tenant, entry }: { tenant: string; entry: AuditEntry }) {
  const role = useRole();
  const names = useNames(tenant);
  const [asking, setAsking] = useState(false);
  const { at, actor, object, change_id, audit_id, row, row_count } = entry;
  const may = revertable(entry, role);
  const latest = useQuery({
    queryKey: tenantKey(tenant, 'audit', 'latest', object.kind, object.id),
    queryFn: ({ signal }) =>
      api.get('/api/v1/tenants/{tenant}/audit', {
        tenant,
        object_kind: object.kind,
        object_id: object.id,
        limit: 1,
        signal,
      }),
    enabled: may && !row_count,
  });
  const newest = latest.data?.items[0];
  const change = useQuery({ ...changeQuery(tenant, { change_id }), enabled: !!newest && isUndo(newest) });
  const undone = newest && change.data?.items.some((one) => undoes(newest, one, row));
  const mayUndo = may && (row_count !== undefined || (newest && isAsLeft(entry, newest)));

  return (
    <>
      <p className={styles.sentence}>
        <strong>{actorOf(entry)}</strong> {verbOf(entry)} {objectOf(entry, names)}.
      </p>
      {row_count ? <Rows tenant={tenant} entry={entry} /> : <Diff entry={entry} />}
      <Facts
        facts={{
          When: (
            <>
              {exactTime(Date.parse(at))} (<RelativeTime at={at} />)
            </>
          ),
          'Part of': causeOf(entry),
          Request: actor.request_id ? <code>{actor.request_id}</code> : null,
          Entry: <span className="numeric">{audit_id}</span>,
        }}
      />
      {may && newest && !isAsLeft(entry, newest) && (
        <p className="soft">
          {undone ? 'This change was undone.' : 'A later change builds on this one, so it cannot be undone.'}
        </p>
      )}
      <div className={styles.acts}>
        {mayUndo && (
          <Button variant="default" leftSection={<IconUndo size={15} aria-hidden />} onClick={() => setAsking(true)}>
            {isUndo(entry) ? 'Redo …' : 'Undo …'}
          </Button>
        )}
        {!row_count && (
          <LinkButton variant="default" to="." search={{ kind: object.kind, object: object.id }}>
            View history
          </LinkButton>
        )}
        {actor.act && (
          <LinkButton variant="default" to="." search={{ change: change_id }}>
            View full change
          </LinkButton>
        )}
      </div>
      {asking && (
        <UndoChange
          tenant={tenant}
          of={row || row_count ? { audit_id, row } : { change_id }}
          names={names}
          onClose={() => setAsking(false)}
        />
      )}
    </>
  );
}

const rowsAtOnce = 50;

function Rows({ tenant, entry }: { tenant: string; entry: AuditEntry }) {
  const role = useRole();
  const names = useNames(tenant);
  const [shown, setShown] = useState(rowsAtOnce);
  const [asking, setAsking] = useState<number>();
  const rows = unpacked(entry);
  const list = {
    hasNextPage: shown < rows.length,
    isFetchingNextPage: false,
    fetchNextPage: () => setShown(shown + rowsAtOnce),
  };
  return (
    <>
      <ul className={styles.rows} aria-label="What changed">
        {rows.slice(0, shown).map((row) => (
          <li key={row.row}>
            <span>
              {objectOf(row, names)}
              <span className={`soft ${styles.values}`}>{changesOf(row).filter(isNew).map(changeText).join(', ')}</span>
            </span>
            {revertable(row, role) && (
              <Button variant="subtle" aria-label={`Undo ${objectOf(row, names)}`} onClick={() => setAsking(row.row)}>
                Undo …
              </Button>
            )}
          </li>
        ))}
      </ul>
      <ShowMore list={list} rows={rows.slice(0, shown)} noun="row" />
      {asking !== undefined && (
        <UndoChange
          tenant={tenant}
          of={{ audit_id: entry.audit_id, row: asking }}
          names={names}
          onClose={() => setAsking(undefined)}
        />
      )}
    </>
  );
}

const isNew = ({ field }: Change) => field !== 'User' && field !== 'Rule';

function Diff({ entry }: { entry: AuditEntry }) {
  const changes = changesOf(entry);
  const both = entry.before !== null && entry.after !== null;
  if (changes.length === 0) return <p className="soft">No values changed.</p>;
  return (
    <table className={styles.diff} aria-label="What changed">
      <thead>
        <tr>
          <td />
          {entry.before !== null && <th scope="col">Before</th>}
          {entry.after !== null && <th scope="col">{both ? 'After' : 'Created'}</th>}
        </tr>
      </thead>
      <tbody>
        {changes.map(({ field, before, after }) => (
          <tr key={field}>
            <th scope="row">{field}</th>
            {before !== null && (
              <td>
                <del>{before}</del>
              </td>
            )}
            {after !== null && (
              <td>
                <ins>{after}</ins>
              </td>
            )}
          </tr>
        ))}
      </tbody>
    </table>
  );
}
