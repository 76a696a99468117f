import { ActionIcon } from '@mantine/core';
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { changed } from '~/api/changes';
import { api } from '~/api/client';
import type { Invitation } from '~/api/types';
import { ConfirmAction } from '~/components/ConfirmAction';
import { actsColumn, timeColumn } from '~/components/columns';
import { type Column, DataTable } from '~/components/DataTable';
import { IconX } from '~/components/icons';
import { MailOutcome } from '~/components/MailOutcome';
import { Card } from '~/components/Page';
import { Query } from '~/components/Query';
import { done } from '~/components/toast';
import { useRole, useTenant } from '~/session';
import { invitationsQuery } from './queries';

export function Invitations() {
  const tenant = useTenant();
  const { own } = useRole();
  const invitations = useQuery(invitationsQuery(tenant));
  const queries = useQueryClient();
  const [revoking, setRevoking] = useState<Invitation | null>(null);

  const columns: Column<Invitation>[] = [
    { key: 'email', header: 'Invited', render: ({ email }) => <strong>{email}</strong> },
    {
      key: 'mail',
      header: 'Mail',
      render: ({ mail }) => (mail ? <MailOutcome mail={mail} /> : <span className="soft">Link passed on</span>),
    },
    { key: 'role', header: 'Role', width: 100, render: ({ role }) => role },
    { key: 'by', header: 'By', wide: true, render: ({ invited_by }) => invited_by },
    timeColumn('until', 'Ends', ({ expires_at }) => expires_at, { wide: false }),
  ];
  if (own) {
    const acts = (invitation: Invitation) => (
      <ActionIcon aria-label={`Revoke the invitation of ${invitation.email}`} onClick={() => setRevoking(invitation)}>
        <IconX size={15} />
      </ActionIcon>
    );
    columns.push(actsColumn(60, acts));
  }

  async function revoke() {
    if (!revoking) return;
    await api.delete('/api/v1/tenants/{tenant}/invitations/{invitation_id}', {
      tenant,
      invitation_id: revoking.invitation_id,
    });
    await changed(queries, tenant, 'invitation');
    done(`Invitation of ${revoking.email} revoked`);
  }

  if (invitations.data?.length === 0) return null;
  return (
    <Card flush title="Open invitations">
      <Query query={invitations}>
        {(items) => (
          <DataTable
            label="Open invitations"
            columns={columns}
            rows={items}
            rowKey={({ invitation_id }) => invitation_id}
          />
        )}
      </Query>
      <ConfirmAction
        opened={revoking !== null}
        onClose={() => setRevoking(null)}
        title="Revoke this invitation?"
        effect={`The link that was sent to ${revoking?.email} stops working.`}
        verb="Revoke invitation"
        destructive
        action={revoke}
      />
    </Card>
  );
}
