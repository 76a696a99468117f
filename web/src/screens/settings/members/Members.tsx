import { ActionIcon, Button, Checkbox, NativeSelect } from '@mantine/core';
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { changed } from '~/api/changes';
import { api, etagOf } from '~/api/client';
import { membersQuery, sessionKey } from '~/api/queries';
import { openScheduledQuery } from '~/api/scheduled';
import type { Member } from '~/api/types';
import { ConfirmAction } from '~/components/ConfirmAction';
import { actsColumn } from '~/components/columns';
import { type Column, DataTable } from '~/components/DataTable';
import { IconPlus, IconX } from '~/components/icons';
import { NotVerified } from '~/components/NotVerified';
import { Outcome } from '~/components/Outcome';
import { Card } from '~/components/Page';
import { Query } from '~/components/Query';
import { RelativeTime, useNow } from '~/components/Time';
import { done, failed } from '~/components/toast';
import { keyState } from '~/domain/key';
import { type Role, roleNames, roles } from '~/domain/roles';
import { whenWords } from '~/domain/scheduled';
import { signInAddress, useRole, useSession, useTenant } from '~/session';
import { keysQuery } from '../keys/queries';
import styles from '../Settings.module.css';
import { Invitations } from './Invitations';
import { Invite } from './Invite';

export default function Members() {
  const tenant = useTenant();
  const { own } = useRole();
  const { account } = useSession();
  const members = useQuery(membersQuery(tenant));
  const [removing, setRemoving] = useState<Member | null>(null);
  const [cancels, setCancels] = useState(false);
  const [inviting, setInviting] = useState(false);
  const queries = useQueryClient();

  const columns: Column<Member>[] = [
    {
      key: 'who',
      header: 'Member',
      render: (member) => (
        <>
          <strong>{member.name || member.email}</strong>
          {member.account_id === account.account_id && <span className="soft"> (you)</span>}{' '}
          <NotVerified account={member} />
          {!member.proven && (
            <div className={`soft ${styles.wraps}`} title={signInAddress(tenant)}>
              {member.account_id === account.account_id ? 'Your sign-in address' : 'Sign-in address'}: /sign-in/
              {tenant}
            </div>
          )}
          {member.granted_by && (
            <div className="soft" title={`By a group at ${member.granted_by}. Changing the role here keeps it.`}>
              Role by a group
            </div>
          )}
        </>
      ),
    },
    { key: 'email', header: 'E-mail', wide: true, render: ({ email }) => email },
    { key: 'role', header: 'Role', width: 132, render: (member) => <RoleOf member={member} /> },
    {
      key: 'since',
      header: 'Since',
      width: 140,
      wide: true,
      render: ({ created_at, disabled }) =>
        disabled ? <Outcome tone="denied">Disabled</Outcome> : <RelativeTime at={created_at} />,
    },
  ];
  if (own) {
    columns.splice(3, 0, {
      key: 'factor',
      header: 'Second factor',
      width: 120,
      wide: true,
      render: ({ second_factor }) =>
        second_factor ? <Outcome tone="allowed">On</Outcome> : <span className="soft">None</span>,
    });
    const acts = (member: Member) => (
      <ActionIcon aria-label={`Remove ${member.email}`} onClick={() => ask(member)}>
        <IconX size={15} />
      </ActionIcon>
    );
    columns.push(actsColumn(60, acts));
  }

  function ask(member: Member) {
    setCancels(false);
    setRemoving(member);
  }

  async function remove() {
    if (!removing) return;
    await api.delete('/api/v1/tenants/{tenant}/members/{account_id}', {
      tenant,
      account_id: removing.account_id,
      etag: etagOf(removing),
      scheduled_changes: cancels ? 'cancel' : 'keep',
    });
    const self = removing.account_id === account.account_id;
    if (self) await queries.invalidateQueries({ queryKey: sessionKey });
    else await changed(queries, tenant, 'member', 'scheduled_change');
    done(`${removing.email} removed`);
  }

  return (
    <>
      <Card
        flush
        title="Members"
        actions={
          own && (
            <Button leftSection={<IconPlus size={15} aria-hidden />} onClick={() => setInviting(true)}>
              Invite
            </Button>
          )
        }
      >
        <Query query={members}>
          {(items) => (
            <DataTable label="Members" columns={columns} rows={items} rowKey={({ account_id }) => account_id} />
          )}
        </Query>
      </Card>
      <Invitations />
      {inviting && <Invite tenant={tenant} onClose={() => setInviting(false)} />}
      <ConfirmAction
        opened={removing !== null}
        onClose={() => setRemoving(null)}
        title={`Remove ${removing?.name || removing?.email}?`}
        effect={
          removing?.account_id === account.account_id
            ? 'This is you. You lose access at once, and only another owner can invite you again.'
            : removing && <Removal member={removing} cancels={cancels} onCancels={setCancels} />
        }
        verb="Remove member"
        destructive
        action={remove}
      />
    </>
  );
}

interface RemovalProps {
  member: Member;
  cancels: boolean;
  onCancels: (cancels: boolean) => void;
}

/** Keys and scheduled changes outlive the person who made them. */
function Removal({ member, cancels, onCancels }: RemovalProps) {
  const tenant = useTenant();
  const keys = useQuery(keysQuery(tenant));
  const scheduled = useQuery(openScheduledQuery(tenant));
  const waiting = (scheduled.data ?? []).filter(
    ({ state, requester_account_id }) => state === 'waiting' && requester_account_id === member.account_id,
  );
  const now = useNow();
  const theirs = (keys.data ?? []).filter(
    (key) =>
      ['active', 'expiring'].includes(keyState(key, now)) &&
      key.created_by?.kind === 'account' &&
      key.created_by.id === String(member.account_id),
  );
  return (
    <>
      They lose access at once. Their account and their past changes stay.
      {theirs.length > 0 && (
        <>
          {' '}
          The API keys that they made keep working, until you revoke them:{' '}
          <strong>{theirs.map(({ name }) => name).join(', ')}</strong>.
        </>
      )}
      {waiting.length > 0 && (
        <>
          {' '}
          They scheduled changes that still wait, and that are made in their name:
          <ul>
            {waiting.map((change) => (
              <li key={change.change_id}>
                {change.title}, {whenWords(change)}
              </li>
            ))}
          </ul>
          <Checkbox
            label="Cancel these changes"
            checked={cancels}
            onChange={(event) => onCancels(event.currentTarget.checked)}
          />
        </>
      )}
    </>
  );
}

function RoleOf({ member }: { member: Member }) {
  const tenant = useTenant();
  const { own } = useRole();
  const { account } = useSession();
  const queries = useQueryClient();
  const [asking, setAsking] = useState<Role | null>(null);
  const self = member.account_id === account.account_id;

  const change = async (role: Role) => {
    await api.patch('/api/v1/tenants/{tenant}/members/{account_id}', {
      tenant,
      account_id: member.account_id,
      etag: etagOf(member),
      body: { role },
    });
    await changed(queries, tenant, 'member');
    if (self) await queries.invalidateQueries({ queryKey: sessionKey });
    done(`${member.email} is now ${roleNames[role]}`);
  };
  const changing = useMutation({
    mutationFn: change,
    onError: (error) => failed(`Could not change the role of ${member.email}`, error),
    onSettled: () => changed(queries, tenant, 'member'),
  });

  if (!own) return <>{member.role}</>;
  return (
    <>
      <NativeSelect
        aria-label={`Role of ${member.email}`}
        className={styles.role}
        data={roles}
        value={changing.isPending ? changing.variables : member.role}
        disabled={changing.isPending}
        onChange={(event) => {
          const role = event.currentTarget.value as Role;
          if (self) setAsking(role);
          else changing.mutate(role);
        }}
      />
      <ConfirmAction
        opened={asking !== null}
        onClose={() => setAsking(null)}
        title="Give up your own role?"
        effect="You will no longer be an owner. Only another owner can give the role back."
        verb={`Become ${asking ? roleNames[asking] : ''}`}
        destructive
        action={async () => asking && change(asking)}
      />
    </>
  );
}
