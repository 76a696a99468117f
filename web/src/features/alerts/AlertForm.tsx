import { Switch, TextInput } from '@mantine/core';
import { useQueryClient } from '@tanstack/react-query';
import { changed } from '~/api/changes';
import { api, etagOf } from '~/api/client';
import type { Alert, Rule } from '~/api/types';
import { CapacityNote } from '~/components/CapacityNote';
import { FormDialog } from '~/components/FormDialog';
import { done, failed } from '~/components/toast';
import { fieldsOf, useSave } from '~/components/useSave';
import { Condition } from './Condition';
import { Destination } from './Destination';
import { type AlertDraft, conditionIn, draftOf, type Field, wantedBy } from './draft';
import { Preview } from './Preview';
import { sayField } from './versions';

interface Props {
  tenant: string;
  alert: Alert | null;
  rules: Rule[];
  rule?: string;
  onSecret: (secret: string) => void;
  onClose: () => void;
}

export function AlertForm({ tenant, alert, rules, rule, onSecret, onClose }: Props) {
  const queries = useQueryClient();
  const path = { tenant, alert_id: alert?.alert_id ?? '' };
  const begunWith = rules.find(({ rule_id }) => rule_id === rule);
  const { draft, change, save, conflict } = useSave<Alert | null, AlertDraft>({
    what: 'this alert',
    saved: tag(alert),
    draftOf: (saved) => draftOf(saved, begunWith),
    send: async (draft, base) => {
      const wanted = wantedBy(draft);
      if (!base.value) {
        const created = await api.post('/api/v1/tenants/{tenant}/alerts', { tenant, body: wanted });
        if (created.secret) onSecret(created.secret);
        else done(`Alert ${created.alert.name} created`);
        return tag(created.alert);
      }
      const saved = await api.patch('/api/v1/tenants/{tenant}/alerts/{alert_id}', {
        ...path,
        etag: base.etag,
        body: wanted,
      });
      done(`Alert ${saved.name} saved`);
      if (saved.format === 'webhook' && base.value.format !== 'webhook') await sign(saved);
      return tag(saved);
    },
    read: async () => tag(await api.get('/api/v1/tenants/{tenant}/alerts/{alert_id}', path)),
    say: (name, draft, theirs) => sayField(name, draft, rules, theirs ?? alert),
    store: async () => {
      const read = changed(queries, tenant, 'alert');
      // A new alert does not wait for the list, or the form would stay open below the secret.
      if (alert) await read;
    },
  });

  async function sign(saved: Alert) {
    const params = { tenant, alert_id: saved.alert_id, etag: etagOf(saved) };
    try {
      const { secret } = await api.post('/api/v1/tenants/{tenant}/alerts/{alert_id}/rotate', params);
      if (secret) onSecret(secret);
    } catch (error) {
      failed('The alert is saved, but has no secret yet. Rotate it', error);
    }
  }

  return (
    <FormDialog
      title={alert ? `Alert ${alert.name}` : 'New alert'}
      verb={alert ? 'Save' : 'Create alert'}
      disabled={draft.rule_id === null}
      onClose={onClose}
      save={save}
      beside={conflict}
    >
      {(wrong) => <Fields {...{ tenant, alert, draft, change, rules }} field={fieldsOf(draft, change, wrong)} />}
    </FormDialog>
  );
}

interface FieldsProps {
  tenant: string;
  alert: Alert | null;
  draft: AlertDraft;
  field: Field;
  change: (part: Partial<AlertDraft>) => void;
  rules: Rule[];
}

function Fields({ tenant, alert, draft, field, change, rules }: FieldsProps) {
  return (
    <>
      {!alert && <CapacityNote tenant={tenant} thing="alerts" />}
      <TextInput label="Name" placeholder="Search abuse" required data-autofocus {...field('name')} />
      <Condition draft={draft} field={field} change={change} rules={rules} />
      <Preview tenant={tenant} condition={conditionIn(draft)} rules={rules} />
      <Destination tenant={tenant} alert={alert} draft={draft} field={field} change={change} />
      <Switch
        label="On"
        checked={draft.is_active}
        onChange={(event) => change({ is_active: event.currentTarget.checked })}
      />
    </>
  );
}

const tag = (alert: Alert | null) => ({ value: alert, etag: alert ? etagOf(alert) : '' });
