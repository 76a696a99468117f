import { NativeSelect, TextInput } from '@mantine/core';
import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { changed } from '~/api/changes';
import { api, body } from '~/api/client';
import { FormDialog } from '~/components/FormDialog';
import { SecretDialog } from '~/components/SecretDialog';
import { type Role, roleNames, roles } from '~/domain/roles';

/** Creates an invitation and shows its link once. Sluice sends no mail. */
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
      title="Invite a member"
      lead="Creates a link for you to send. Sluice sends no e-mail."
      verb="Create link"
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
            description="Viewers can read. Editors can change plans, rules and users. Owners can change everything."
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
