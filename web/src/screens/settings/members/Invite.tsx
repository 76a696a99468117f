import { NativeSelect, TextInput } from '@mantine/core';
import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { changed } from '~/api/changes';
import { api, body } from '~/api/client';
import { FormDialog } from '~/components/FormDialog';
import { SecretDialog } from '~/components/SecretDialog';
import { type Role, roleNames, roles } from '~/domain/roles';

/** Makes an invitation, then shows its link once. Sluice sends no mail: the inviter passes the link on. */
export function Invite({ tenant, onClose }: { tenant: string; onClose: () => void }) {
  const queries = useQueryClient();
  const [email, setEmail] = useState('');
  const [role, setRole] = useState<Role>('viewer');
  const [link, setLink] = useState<string | null>(null);

  async function invite() {
    const { token } = await body(
      api.POST('/api/v1/tenants/{tenant}/invitations', {
        params: { path: { tenant } },
        body: { email, role },
      }),
    );
    setLink(`${window.location.origin}/invitation#${token}`);
    await changed(queries, tenant, 'invitation');
  }

  if (link) {
    return (
      <SecretDialog title={`Send this link to ${email}`} what="link" secret={link} onClose={onClose}>
        <p className="soft">
          Anyone who opens the link within seven days becomes {roleNames[role]}. If it is lost, revoke the
          invitation and make another.
        </p>
      </SecretDialog>
    );
  }
  return (
    <FormDialog
      title="Invite somebody"
      lead="You get a link to send; no mail leaves from here."
      verb="Make the link"
      onClose={onClose}
      onSaved={() => undefined}
      save={invite}
    >
      {(wrong) => (
        <>
          <TextInput
            label="E-mail"
            type="email"
            required
            withAsterisk={false}
            data-autofocus
            value={email}
            error={wrong('/email')}
            onChange={(event) => setEmail(event.currentTarget.value)}
          />
          <NativeSelect
            label="Role"
            description="Viewers look, editors change plans, rules and users, owners everything."
            data={roles}
            value={role}
            error={wrong('/role')}
            onChange={(event) => setRole(event.currentTarget.value as Role)}
          />
        </>
      )}
    </FormDialog>
  );
}
