import { NativeSelect, TextInput } from '@mantine/core';
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { changed } from '~/api/changes';
import { api } from '~/api/client';
import { signInOptionsQuery } from '~/api/queries';
import { CapacityNote } from '~/components/CapacityNote';
import { FormDialog } from '~/components/FormDialog';
import { SecretDialog } from '~/components/SecretDialog';
import { done } from '~/components/toast';
import { useFields } from '~/components/useFields';
import { type Role, roleNames, roles } from '~/domain/roles';
import { signInAddress } from '~/session';

/**
 * Creates an invitation. With mail, its link goes to the invitee alone; otherwise it is shown once, to be passed on.
 */
export function Invite({ tenant, onClose }: { tenant: string; onClose: () => void }) {
  const queries = useQueryClient();
  const { values, field } = useFields({ email: '', role: 'viewer' as Role });
  const { email, role } = values;
  const [link, setLink] = useState<string | null>(null);
  const mail = useQuery(signInOptionsQuery).data?.mail;

  async function invite() {
    const { token } = await api.post('/api/v1/tenants/{tenant}/invitations', { tenant, body: values });
    await changed(queries, tenant, 'invitation');
    if (token) {
      setLink(`${window.location.origin}/invitation#${token}`);
      return;
    }
    done(`Invitation to ${email} queued`);
    onClose();
  }

  if (link) {
    return (
      <SecretDialog title={`Send this link to ${email}`} what="link" secret={link} onClose={onClose}>
        <p className="soft">
          Whoever opens the link within seven days is {roleNames[role]} of this tenant only, and signs in at{' '}
          <strong>{signInAddress(tenant)}</strong>.
        </p>
      </SecretDialog>
    );
  }
  return (
    <FormDialog
      title="Invite a member"
      lead={
        mail
          ? 'The link goes to this address by mail. Nobody else sees it.'
          : 'Creates a link for you to send, because Sluice sends no e-mail here.'
      }
      verb={mail ? 'Send invitation' : 'Create link'}
      onClose={onClose}
      onSaved={() => undefined}
      save={invite}
    >
      {(wrong) => (
        <>
          <CapacityNote tenant={tenant} thing="members" />
          <TextInput label="E-mail" type="email" required data-autofocus {...field('email', wrong)} />
          <NativeSelect
            label="Role"
            description="Viewers can read. Editors can change plans, rules and users. Owners can change everything."
            data={roles}
            {...field('role', wrong)}
          />
        </>
      )}
    </FormDialog>
  );
}
