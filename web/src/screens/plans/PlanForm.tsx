import { Textarea, TextInput } from '@mantine/core';
import { useQueryClient } from '@tanstack/react-query';
import { changed } from '~/api/changes';
import { api, etagOf, tagged } from '~/api/client';
import type { Plan } from '~/api/types';
import { undoOf } from '~/api/undo';
import { CapacityNote } from '~/components/CapacityNote';
import { FormDialog } from '~/components/FormDialog';
import { done } from '~/components/toast';
import { useSave } from '~/components/useSave';

interface Props {
  tenant: string;
  plan: Plan | null;
  onClose: () => void;
}

export function PlanForm({ tenant, plan, onClose }: Props) {
  const queries = useQueryClient();
  const path = { tenant, plan: plan?.name ?? '' };
  const { field, save, conflict } = useSave<Plan | null, { name: string; description: string }>({
    what: 'this plan',
    saved: { value: plan, etag: plan ? etagOf(plan) : '' },
    draftOf: (saved) => ({ name: saved?.name ?? '', description: saved?.description ?? '' }),
    send: ({ name, description }, base) =>
      tagged<Plan | null>(
        plan
          ? api.patch('/api/v1/tenants/{tenant}/plans/{plan}', { ...path, etag: base.etag, body: { description } })
          : api.post('/api/v1/tenants/{tenant}/plans', { ...path, body: { name, description } }),
      ),
    read: () => tagged(api.get('/api/v1/tenants/{tenant}/plans/{plan}', path)),
    say: (_, { description }) => ['Description', description],
    store: () => changed(queries, tenant, 'plan'),
    onSaved: ({ value }) => done(`Plan ${value?.name} ${plan ? 'saved' : 'created'}`, undoOf(tenant, value)),
  });
  return (
    <FormDialog
      onClose={onClose}
      title={plan ? `Plan ${plan.name}` : 'New plan'}
      verb={plan ? 'Save' : 'Create plan'}
      save={save}
      beside={conflict}
    >
      {(wrong) => (
        <>
          {!plan && <CapacityNote tenant={tenant} thing="plans" />}
          {!plan && (
            <TextInput
              label="Name"
              description="As services send it: free, pro, enterprise"
              required
              data-autofocus
              {...field('name', wrong)}
            />
          )}
          <Textarea label="Description" autosize minRows={2} {...field('description', wrong)} />
        </>
      )}
    </FormDialog>
  );
}
