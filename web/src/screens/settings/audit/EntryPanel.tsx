import { Button } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import { api, body } from '~/api/client';
import { tenantKey } from '~/api/queries';
import type { AuditEntry } from '~/api/types';
import { changeQuery } from '~/api/undo';
import { Facts } from '~/components/Facts';
import { IconUndo } from '~/components/icons';
import { Query } from '~/components/Query';
import { SidePanel } from '~/components/SidePanel';
import { LoadingLines } from '~/components/states';
import { RelativeTime } from '~/components/Time';
import UndoChange from '~/components/UndoChange';
import { actorOf } from '~/domain/actor';
import { causeOf, changesOf, isAsLeft, isUndo, objectOf, revertable, verbOf } from '~/domain/audit';
import { exactTime } from '~/domain/format';
import { useRole } from '~/session';
import styles from './Audit.module.css';
import { useNames } from './names';

interface Props {
  tenant: string;
  /** undefined: closed. */
  id?: number;
  onClose: () => void;
}

/** One change: what differed, who made it, and the button to undo it. */
export function EntryPanel({ tenant, id, onClose }: Props) {
  const entry = useQuery({
    queryKey: tenantKey(tenant, 'audit', id),
    queryFn: ({ signal }) =>
      body(
        api.GET('/api/v1/tenants/{tenant}/audit/{audit_id}', {
          params: { path: { tenant, audit_id: id ?? 0 } },
          signal,
        }),
      ),
    enabled: id !== undefined,
    staleTime: Number.POSITIVE_INFINITY, // what happened stays
  });
  const { isPending } = useNames(tenant); // they make the first sentence longer
  return (
    <SidePanel opened={id !== undefined} onClose={onClose} title="Change">
      {id !== undefined &&
        (isPending ? (
          <LoadingLines />
        ) : (
          <Query query={entry}>{(found) => <Entry tenant={tenant} entry={found} />}</Query>
        ))}
    </SidePanel>
  );
}

function Entry({ tenant, entry }: { tenant: string; entry: AuditEntry }) {
  const role = useRole();
  const names = useNames(tenant);
  const [asking, setAsking] = useState(false);
  const { at, actor, object, change_id, audit_id } = entry;
  const may = revertable(entry, role);
  const latest = useQuery({
    queryKey: tenantKey(tenant, 'audit', 'latest', object.kind, object.id),
    queryFn: ({ signal }) =>
      body(
        api.GET('/api/v1/tenants/{tenant}/audit', {
          params: { path: { tenant }, query: { object_kind: object.kind, object_id: object.id, limit: 1 } },
          signal,
        }),
      ),
    enabled: may,
  });
  const newest = latest.data?.items[0];
  const change = useQuery({ ...changeQuery(tenant, { change_id }), enabled: !!newest && isUndo(newest) });
  const undone = change.data?.items.some((one) => newest?.actor.act === `revert ${one.audit_id}`);

  return (
    <>
      <p className={styles.sentence}>
        <strong>{actorOf(entry)}</strong> {verbOf(entry)} {objectOf(entry, names)}.
      </p>
      <Diff entry={entry} />
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
        {may && newest && isAsLeft(entry, newest) && (
          <Button variant="default" leftSection={<IconUndo size={15} aria-hidden />} onClick={() => setAsking(true)}>
            {isUndo(entry) ? 'Redo …' : 'Undo …'}
          </Button>
        )}
        <Button
          variant="default"
          renderRoot={(props) => <Link {...props} to="." search={{ kind: object.kind, object: object.id }} />}
        >
          View history
        </Button>
        {actor.act && (
          <Button variant="default" renderRoot={(props) => <Link {...props} to="." search={{ change: change_id }} />}>
            View full change
          </Button>
        )}
      </div>
      {asking && <UndoChange tenant={tenant} of={{ change_id }} names={names} onClose={() => setAsking(false)} />}
    </>
  );
}

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
