import { Button, Group, Textarea, TextInput } from '@mantine/core';
import { useMutation, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { changed } from '~/api/changes';
import { api, body, etagOf, ifMatch, tagged } from '~/api/client';
import { isStatus, ProblemError, sentence } from '~/api/problem';
import type { Plan } from '~/api/types';
import { ConflictDialog } from '~/components/ConflictDialog';
import { Dialog } from '~/components/Dialog';
import { QuotaNote } from '~/components/QuotaNote';
import { done } from '~/components/toast';

interface Props {
  tenant: string;
  /** null: creates a plan. */
  plan: Plan | null;
  onClose: () => void;
}

/** Creates a plan or edits its description. */
export function PlanForm({ tenant, plan, onClose }: Props) {
  const queries = useQueryClient();
  const [name, setName] = useState(plan?.name ?? '');
  const [description, setDescription] = useState(plan?.description ?? '');
  const [theirs, setTheirs] = useState<{ value: Plan; etag: string } | null>(null);
  const path = { tenant, plan: plan?.name ?? '' };

  const save = useMutation({
    mutationFn: (etag: string) =>
      plan
        ? body(
            api.PATCH('/api/v1/tenants/{tenant}/plans/{plan}', {
              params: { path, header: ifMatch(etag) },
              body: { description },
            }),
          )
        : body(api.POST('/api/v1/tenants/{tenant}/plans', { params: { path }, body: { name, description } })),
    onSuccess: async () => {
      await changed(queries, tenant, 'plan');
      done(`Plan ${name} ${plan ? 'saved' : 'created'}`);
      onClose();
    },
    onError: async (error) => {
      if (isStatus(error, 412))
        setTheirs(await tagged(api.GET('/api/v1/tenants/{tenant}/plans/{plan}', { params: { path } })));
    },
  });

  const field = (pointer: string) =>
    save.error instanceof ProblemError ? save.error.field(pointer) : undefined;
  const other = save.isError && !isStatus(save.error, 412) && !field('/name') && !field('/description');

  return (
    <Dialog onClose={onClose} title={plan ? `Plan ${plan.name}` : 'New plan'} pending={save.isPending}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          save.mutate(plan ? etagOf(plan) : '');
        }}
      >
        {!plan && <QuotaNote tenant={tenant} thing="plans" />}
        {!plan && (
          <TextInput
            label="Name"
            description="The identifier that services send: free, pro, enterprise"
            required
            withAsterisk={false}
            data-autofocus
            value={name}
            error={field('/name')}
            onChange={(event) => setName(event.currentTarget.value)}
          />
        )}
        <Textarea
          mt="md"
          label="Description"
          autosize
          minRows={2}
          value={description}
          error={field('/description')}
          onChange={(event) => setDescription(event.currentTarget.value)}
        />
        {other && (
          <p role="alert" style={{ color: 'var(--denied)', marginTop: 12 }}>
            {sentence(save.error)}
          </p>
        )}
        <Group justify="flex-end" mt="lg">
          <Button variant="default" onClick={onClose}>
            Cancel
          </Button>
          <Button type="submit" loading={save.isPending}>
            {plan ? 'Save' : 'Create plan'}
          </Button>
        </Group>
      </form>
      <ConflictDialog
        opened={theirs !== null}
        what="this plan"
        versions={[{ label: 'Description', mine: description, theirs: theirs?.value.description ?? '' }]}
        onKeepMine={() => {
          if (theirs) save.mutate(theirs.etag);
          setTheirs(null);
        }}
        onTakeTheirs={() => {
          setDescription(theirs?.value.description ?? '');
          changed(queries, tenant, 'plan');
          setTheirs(null);
        }}
        onClose={() => setTheirs(null)}
      />
    </Dialog>
  );
}
