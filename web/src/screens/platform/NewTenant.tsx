import { TextInput } from '@mantine/core';
import { useNavigate } from '@tanstack/react-router';
import { api } from '~/api/client';
import { FormDialog } from '~/components/FormDialog';
import { done } from '~/components/toast';
import { useFields } from '~/components/useFields';

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
  const { values, field } = useFields({ name: '', slug: null as string | null, default_plan: 'free' });
  const { name, default_plan } = values;
  const slug = values.slug ?? slugOf(name);

  async function create() {
    await api.post('/api/v1/tenants', { body: { slug, name, default_plan: default_plan || null } });
    await onCreated(slug);
    done(`Tenant ${name} created`);
    await navigate({ to: '/t/$tenant/overview', params: { tenant: slug }, ignoreBlocker: true });
  }

  return (
    <FormDialog title="New tenant" verb="Create tenant" onClose={onClose} save={create}>
      {(wrong) => (
        <>
          <TextInput label="Name" required data-autofocus {...field('name', wrong)} />
          <TextInput
            label="Slug"
            description="Used in URLs; it cannot be changed later."
            required
            {...field('slug', wrong)}
            value={slug}
          />
          <TextInput
            label="Default plan"
            description="For users without an assigned plan; optional."
            {...field('default_plan', wrong)}
          />
        </>
      )}
    </FormDialog>
  );
}
