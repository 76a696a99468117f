import { TextInput } from '@mantine/core';
import { useNavigate } from '@tanstack/react-router';
import { useState } from 'react';
import { api } from '~/api/client';
import { FormDialog } from '~/components/FormDialog';
import { done } from '~/components/toast';

interface Props {
  onClose: () => void;
  onCreated: (slug: string) => Promise<void>;
}

export function slugOf(name: string): string {
  return name
    .normalize('NFD')
    .toLowerCase()
    .replace(/\p{M}/gu, '')
    .replace(/[^a-z0-9]+/g, '-')
    .replace(/^-|-$/g, '')
    .slice(0, 63);
}

export function NewTenant({ onClose, onCreated }: Props) {
  const navigate = useNavigate();
  const [name, setName] = useState('');
  const [typed, setTyped] = useState<string | null>(null);
  const [plan, setPlan] = useState('free');
  const slug = typed ?? slugOf(name);

  async function create() {
    await api.post('/api/v1/tenants', { body: { slug, name, default_plan: plan || null } });
    await onCreated(slug);
    done(`Tenant ${name} created`);
    await navigate({ to: '/t/$tenant/overview', params: { tenant: slug }, ignoreBlocker: true });
  }

  return (
    <FormDialog title="New tenant" verb="Create tenant" onClose={onClose} save={create}>
      {(wrong) => (
        <>
          <TextInput
            label="Name"
            required
            data-autofocus
            value={name}
            error={wrong('/name')}
            onChange={(event) => setName(event.currentTarget.value)}
          />
          <TextInput
            label="Slug"
            description="Used in URLs; it cannot be changed later."
            required
            value={slug}
            error={wrong('/slug')}
            onChange={(event) => setTyped(event.currentTarget.value)}
          />
          <TextInput
            label="Default plan"
            description="For users without an assigned plan; optional."
            value={plan}
            error={wrong('/default_plan')}
            onChange={(event) => setPlan(event.currentTarget.value)}
          />
        </>
      )}
    </FormDialog>
  );
}
