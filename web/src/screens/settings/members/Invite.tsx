import { Button, Group, Modal, NativeSelect, TextInput } from '@mantine/core';
import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { api, body } from '~/api/client';
import { tenantKey } from '~/api/queries';
import { CodeBlock } from '~/components/CodeBlock';
import { FormDialog } from '~/components/FormDialog';
import type { Role } from '~/domain/roles';
import styles from '../Settings.module.css';
import { roleNames, roles } from './roles';

/** Makes an invitation, and then shows its link, which no mail carries: whoever invites sends it. */
export function Invite({ tenant, onClose }: { tenant: string; onClose: () => void }) {
  const queries = useQueryClient();
  const [email, setEmail] = useState('');
  const [role, setRole] = useState<Role>('editor');
  const [link, setLink] = useState<string | null>(null);

  async function invite() {
    const { token } = await body(
      api.POST('/api/v1/tenants/{tenant}/invitations', {
        params: { path: { tenant } },
        body: { email, role },
      }),
    );
    setLink(`${window.location.origin}/invitation#${token}`);
    await queries.invalidateQueries({ queryKey: tenantKey(tenant, 'invitations') });
  }

  if (link) {
    return (
      <Modal
        opened
        onClose={onClose}
        size={560}
        title={`Send this link to ${email}`}
        closeOnClickOutside={false}
      >
        <div className={styles.section}>
          <p className="soft">
            Whoever opens it within seven days becomes {roleNames[role]}. It is shown only now; an invitation
            without its link can be taken back and made again.
          </p>
          <CodeBlock code={link} label="invitation link" />
        </div>
        <Group justify="flex-end" mt="lg">
          <Button onClick={onClose}>Done</Button>
        </Group>
      </Modal>
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
