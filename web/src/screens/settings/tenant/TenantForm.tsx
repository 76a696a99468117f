import { Button, Group, NativeSelect, NumberInput, Switch, TextInput } from '@mantine/core';
import { useQueryClient } from '@tanstack/react-query';
import { changed } from '~/api/changes';
import { api, type Tagged, tagged } from '~/api/client';
import { tenantQuery } from '~/api/queries';
import type { Tenant } from '~/api/types';
import { undoOf } from '~/api/undo';
import { ChoiceField } from '~/components/ChoiceField';
import { FormError, fieldErrors, submits } from '~/components/FormDialog';
import { Leaving } from '~/components/Leaving';
import { done } from '~/components/toast';
import { useSave } from '~/components/useSave';
import { choicesOf, failureModeLabels, fieldLabels } from '~/domain/rule';
import styles from '../Settings.module.css';
import { type Draft, draftOf, failureModeMeans, type numbers, patchOf, sayField } from './settings';

export function TenantForm({ saved, plans }: { saved: Tagged<Tenant>; plans: string[] }) {
  const { slug } = saved.value;
  const queries = useQueryClient();
  const path = { tenant: slug };
  const editor = useSave<Tenant, Draft>({
    what: 'these settings',
    saved,
    draftOf,
    send: (draft, { etag }) => tagged(api.patch('/api/v1/tenants/{tenant}', { ...path, etag, body: patchOf(draft) })),
    read: () => tagged(api.get('/api/v1/tenants/{tenant}', path)),
    say: sayField,
    store: (now) => queries.setQueryData(tenantQuery(slug).queryKey, now),
    onSaved: async ({ value }) => {
      await changed(queries, slug, 'tenant');
      done('Settings saved. They take effect within 2 s', undoOf(slug, value));
    },
  });
  const { draft, dirty, field, change } = editor;

  function discard() {
    editor.discard();
    done('Edits discarded', { label: 'Undo', run: () => change(draft) });
  }

  const { wrong, rest } = fieldErrors(editor.error);
  const number = (name: (typeof numbers)[number]) => ({
    ...field(name),
    error: wrong(`/settings/${name}`),
    allowDecimal: false,
    allowNegative: false,
  });

  return (
    <form className={styles.field} onSubmit={submits(() => editor.submit())}>
      <TextInput label="Name" description={`The slug ${slug} cannot be changed`} {...field('name', wrong)} />
      <ChoiceField
        label="Default plan"
        description="For users without an assigned plan"
        data={[{ value: '', label: 'None' }, ...plans]}
        {...field('default_plan', wrong)}
      />
      <NativeSelect
        label={fieldLabels.failure_mode}
        description={failureModeMeans[draft.failure_mode]}
        data={choicesOf(failureModeLabels)}
        {...field('failure_mode')}
        error={wrong('/settings/failure_mode')}
      />
      <NumberInput
        label="Retry jitter"
        description="Spreads Retry-After, so that callers do not all retry at once. 0 to 50 %"
        suffix=" %"
        max={50}
        {...number('retry_jitter_percent')}
      />
      <Group grow gap={8} align="start">
        <NumberInput
          label="IPv4 prefix"
          description="One bucket for each prefix"
          prefix="/"
          max={32}
          {...number('ipv4_prefix')}
        />
        <NumberInput
          label="IPv6 prefix"
          description="A customer usually has a /64"
          prefix="/"
          max={128}
          {...number('ipv6_prefix')}
        />
      </Group>
      <NumberInput
        label="Record checks"
        description="Checks kept for replays, in days; 0 deletes them"
        suffix=" days"
        max={30}
        {...number('record_days')}
      />
      <Switch
        label="Rates adapt to backends"
        description="Off: every configured rate is in force"
        checked={!draft.fixed_rates}
        onChange={(event) => change({ fixed_rates: !event.currentTarget.checked })}
      />
      <FormError>{rest()}</FormError>
      <Group gap={8}>
        <Button type="submit" disabled={!dirty} loading={editor.pending}>
          Save
        </Button>
        {dirty && (
          <Button variant="default" onClick={discard}>
            Discard edits
          </Button>
        )}
      </Group>
      <Leaving when={dirty} what="Your changes" />
      {editor.conflict}
    </form>
  );
}
