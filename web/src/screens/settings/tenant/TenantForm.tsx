import { Button, Group, NativeSelect, NumberInput, Switch, Text, TextInput } from '@mantine/core';
import { useForm } from '@mantine/form';
import { useMutation, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { changed } from '~/api/changes';
import { api, ifMatch, type Tagged, tagged } from '~/api/client';
import { isStatus } from '~/api/problem';
import { tenantQuery } from '~/api/queries';
import type { Tenant } from '~/api/types';
import { ChoiceField } from '~/components/ChoiceField';
import { ConflictDialog } from '~/components/ConflictDialog';
import { FormError, fieldErrors } from '~/components/FormDialog';
import { Leaving } from '~/components/Leaving';
import { done } from '~/components/toast';
import { choicesOf, failureModeLabels, fieldLabels } from '~/domain/rule';
import styles from '../Settings.module.css';
import { type Draft, described, draftOf, failureModeMeans, patchOf } from './settings';

/** Edits the tenant. A lost race shows both versions. */
export function TenantForm({ saved, plans }: { saved: Tagged<Tenant>; plans: string[] }) {
  const { slug } = saved.value;
  const queries = useQueryClient();
  const [base, setBase] = useState(saved);
  const form = useForm<Draft>({ initialValues: draftOf(saved.value) });
  const draft = form.values;
  const [theirs, setTheirs] = useState<Tagged<Tenant> | null>(null);
  const path = { tenant: slug };
  // A change of other parts of the tenant since is no conflict, because the form does not overwrite them.
  const { etag } = same(saved.value, base.value) ? saved : base;
  const dirty = form.isDirty();

  const save = useMutation({
    mutationFn: (etag: string) =>
      tagged(
        api.PATCH('/api/v1/tenants/{tenant}', {
          params: { path, header: ifMatch(etag) },
          body: patchOf(draft),
        }),
      ),
    onSuccess: async (now) => {
      adopt(now);
      await changed(queries, slug, 'tenant');
      done('Settings saved. They take effect within 2 s');
    },
    onError: async (error) => {
      if (isStatus(error, 412))
        setTheirs(await tagged(api.GET('/api/v1/tenants/{tenant}', { params: { path } })));
    },
  });

  function adopt(now: Tagged<Tenant>) {
    setBase(now);
    form.setInitialValues(draftOf(now.value));
    form.reset();
    queries.setQueryData(tenantQuery(slug).queryKey, now);
  }

  function discard() {
    form.reset();
    done('Edits discarded', { label: 'Undo', run: () => form.setValues(draft) });
  }

  const { wrong, rest } = fieldErrors(isStatus(save.error, 412) ? null : save.error);
  const number = (field: 'jitter' | 'ipv4' | 'ipv6' | 'recordDays', pointer: string) => ({
    ...form.getInputProps(field),
    error: wrong(`/settings/${pointer}`),
    allowDecimal: false,
    allowNegative: false,
  });

  return (
    <form className={styles.field} onSubmit={form.onSubmit(() => save.mutate(etag))}>
      <TextInput
        label="Name"
        description={`The slug ${slug} cannot be changed`}
        {...form.getInputProps('name')}
        error={wrong('/name')}
      />
      {saved.value.buckets === 'spread' && (
        <Text size="sm">
          Its buckets are spread over all servers of the Redis Cluster, which cannot be changed
        </Text>
      )}
      <ChoiceField
        label="Default plan"
        description="For users without an assigned plan"
        data={[{ value: '', label: 'None' }, ...plans]}
        value={form.values.default_plan}
        onChange={(plan) => form.setFieldValue('default_plan', plan)}
        error={wrong('/default_plan')}
      />
      <NativeSelect
        label={fieldLabels.failure_mode}
        description={failureModeMeans[draft.failure_mode]}
        data={choicesOf(failureModeLabels)}
        {...form.getInputProps('failure_mode')}
        error={wrong('/settings/failure_mode')}
      />
      <NumberInput
        label="Retry jitter"
        description="Spreads Retry-After, so that callers do not all retry at once. 0 to 50 %"
        suffix=" %"
        max={50}
        {...number('jitter', 'retry_jitter_percent')}
      />
      <Group grow gap={8} align="start">
        <NumberInput
          label="IPv4 prefix"
          description="Addresses with the same prefix share a bucket"
          prefix="/"
          max={32}
          {...number('ipv4', 'ipv4_prefix')}
        />
        <NumberInput
          label="IPv6 prefix"
          description="A customer usually has a /64"
          prefix="/"
          max={128}
          {...number('ipv6', 'ipv6_prefix')}
        />
      </Group>
      <NumberInput
        label="Record checks"
        description="How many days of checks are kept, so that changes of limits can be replayed. 0 keeps none and deletes those kept"
        suffix=" days"
        max={30}
        {...number('recordDays', 'record_days')}
      />
      <Switch
        label="Rates adapt to backends"
        description="Turn it off to put every configured rate in force within 2 s"
        checked={draft.adapts}
        onChange={(event) => form.setFieldValue('adapts', event.currentTarget.checked)}
      />
      <FormError>{rest()}</FormError>
      <Group gap={8}>
        <Button type="submit" disabled={!dirty} loading={save.isPending}>
          Save
        </Button>
        {dirty && (
          <Button variant="default" onClick={discard}>
            Discard edits
          </Button>
        )}
      </Group>
      <Leaving when={dirty} what="Your changes" />
      <ConflictDialog
        opened={theirs !== null}
        what="these settings"
        versions={Object.entries(described(draft)).map(([label, mine]) => ({
          label,
          mine,
          theirs: theirs ? (described(draftOf(theirs.value))[label] ?? '') : '',
        }))}
        onKeepMine={() => {
          if (theirs) save.mutate(theirs.etag);
          setTheirs(null);
        }}
        onTakeTheirs={() => {
          if (theirs) adopt(theirs);
          setTheirs(null);
        }}
        onClose={() => setTheirs(null)}
      />
    </form>
  );
}

/** Whether the form would show the same for both. */
function same(a: Tenant, b: Tenant): boolean {
  return JSON.stringify(draftOf(a)) === JSON.stringify(draftOf(b));
}
