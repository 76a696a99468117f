import { Radio, Stack, TextInput } from '@mantine/core';
import { useNavigate } from '@tanstack/react-router';
import { useState } from 'react';
import { api } from '~/api/client';
import { FormDialog } from '~/components/FormDialog';
import { done } from '~/components/toast';
import { type Placement, placementLabels, placementMeans, placements } from '~/domain/placement';

interface Props {
  onClose: () => void;
  onCreated: (slug: string) => Promise<void>;
}

/** "Acme Payments, Ltd." → "acme-payments-ltd" */
export function slugOf(name: string): string {
  return name
    .normalize('NFD')
    .toLowerCase()
    .replace(/\p{M}/gu, '')
    .replace(/[^a-z0-9]+/g, '-')
    .replace(/^-|-$/g, '')
    .slice(0, 63);
}

/** Creates a tenant and opens it. The slug follows the name until it is typed. */
export function NewTenant({ onClose, onCreated }: Props) {
  const navigate = useNavigate();
  const [name, setName] = useState('');
  const [typed, setTyped] = useState<string | null>(null);
  const [plan, setPlan] = useState('free');
  const [buckets, setBuckets] = useState<Placement>('together');
  const slug = typed ?? slugOf(name);

  async function create() {
    await api.POST('/api/v1/tenants', { body: { slug, name, default_plan: plan || null, buckets } });
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
            withAsterisk={false}
            data-autofocus
            value={name}
            error={wrong('/name')}
            onChange={(event) => setName(event.currentTarget.value)}
          />
          <TextInput
            label="Slug"
            description="Used in URLs and commands. It cannot be changed later."
            required
            withAsterisk={false}
            value={slug}
            error={wrong('/slug')}
            onChange={(event) => setTyped(event.currentTarget.value)}
          />
          <TextInput
            label="Default plan"
            description="Created with the tenant, for users without an assigned plan. Optional."
            value={plan}
            error={wrong('/default_plan')}
            onChange={(event) => setPlan(event.currentTarget.value)}
          />
          <Radio.Group
            label="Buckets in a Redis Cluster"
            description="This cannot be changed later. With a single Redis server it makes no difference."
            value={buckets}
            error={wrong('/buckets')}
            onChange={(value) => setBuckets(value as Placement)}
          >
            <Stack gap={8} mt={8}>
              {placements.map((placement) => (
                <Radio
                  key={placement}
                  value={placement}
                  label={placementLabels[placement]}
                  description={placementMeans[placement]}
                />
              ))}
            </Stack>
          </Radio.Group>
        </>
      )}
    </FormDialog>
  );
}
