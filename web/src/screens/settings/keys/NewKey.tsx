import { Checkbox, NativeSelect, TextInput } from '@mantine/core';
import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { changed } from '~/api/changes';
import { api, body } from '~/api/client';
import type { Permission } from '~/api/types';
import { FormDialog } from '~/components/FormDialog';
import type { Created } from './CreatedKey';

const permissions: { value: Permission; label: string; description: string }[] = [
  { value: 'check', label: 'Check', description: 'Send checks. Services need this.' },
  { value: 'explain', label: 'Explain', description: 'Explain decisions without taking tokens.' },
  {
    value: 'manage',
    label: 'Manage',
    description: 'Change plans, rules and users. For automation.',
  },
];

const days = 86_400_000;
const lives = [
  { value: '', label: 'Never' },
  { value: '30', label: 'In 30 days' },
  { value: '90', label: 'In 90 days' },
  { value: '365', label: 'In a year' },
];

interface Props {
  tenant: string;
  onClose: () => void;
  onCreated: (created: Created) => void;
}

export function NewKey({ tenant, onClose, onCreated }: Props) {
  const queries = useQueryClient();
  const [name, setName] = useState('');
  const [may, setMay] = useState<string[]>(['check']);
  const [life, setLife] = useState('');

  async function create() {
    const created = await body(
      api.POST('/api/v1/tenants/{tenant}/api-keys', {
        params: { path: { tenant } },
        body: {
          name,
          permissions: may as Permission[],
          expires_at: life ? new Date(Date.now() + Number(life) * days).toISOString() : null,
        },
      }),
    );
    // Not awaited, or the form would stay open below the secret.
    changed(queries, tenant, 'api_key');
    onCreated(created);
  }

  return (
    <FormDialog
      title="Create an API key"
      verb="Create key"
      disabled={may.length === 0}
      onClose={onClose}
      save={create}
    >
      {(wrong) => (
        <>
          <TextInput
            label="Name"
            description="The service that uses it: gateway, billing worker"
            required
            withAsterisk={false}
            data-autofocus
            value={name}
            error={wrong('/name')}
            onChange={(event) => setName(event.currentTarget.value)}
          />
          <Checkbox.Group label="Permissions" value={may} onChange={setMay} error={wrong('/permissions')}>
            {permissions.map((one) => (
              <Checkbox key={one.value} mt="sm" size="sm" {...one} />
            ))}
          </Checkbox.Group>
          <NativeSelect
            label="Expires"
            data={lives}
            value={life}
            error={wrong('/expires_at')}
            onChange={(event) => setLife(event.currentTarget.value)}
          />
        </>
      )}
    </FormDialog>
  );
}
