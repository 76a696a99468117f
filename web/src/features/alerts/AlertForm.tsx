import { Switch, TextInput } from '@mantine/core';
import { useForm } from '@mantine/form';
import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { changed } from '~/api/changes';
import { api, body, etagOf, ifMatch } from '~/api/client';
import { isStatus } from '~/api/problem';
import type { Alert, Rule } from '~/api/types';
import { ConflictDialog } from '~/components/ConflictDialog';
import { FormDialog } from '~/components/FormDialog';
import { QuotaNote } from '~/components/QuotaNote';
import { done } from '~/components/toast';
import { Condition } from './Condition';
import { Destination } from './Destination';
import { type AlertDraft, conditionIn, draftOf, wantedBy } from './draft';
import { Preview } from './Preview';
import { type AlertFields, alertVersions } from './versions';

type Choice = 'mine' | 'theirs' | 'back';

/** A save that lost a race; it continues when the reader chooses a version. */
interface Conflict {
  mine: AlertFields;
  theirs: Alert;
  choose: (choice: Choice) => void;
}

interface Props {
  tenant: string;
  /** null: creates an alert. */
  alert: Alert | null;
  rules: Rule[];
  /** The rule that a new alert begins with. */
  rule?: number;
  /** Called with the secret of a new webhook, which is shown once. */
  onSecret: (secret: string) => void;
  onClose: () => void;
}

/** Creates or edits an alert. */
export function AlertForm({ tenant, alert, rules, rule, onSecret, onClose }: Props) {
  const queries = useQueryClient();
  const draft = useForm<AlertDraft>({
    initialValues: draftOf(
      alert,
      rules.find(({ rule_id }) => rule_id === rule),
    ),
  });
  const { values, getInputProps } = draft;
  const [conflict, setConflict] = useState<Conflict | null>(null);

  /** Saves over the version that the form started from. On a 412 the reader chooses a version. */
  async function update(mine: AlertFields, basis: Alert) {
    const path = { tenant, alert_id: basis.alert_id };
    try {
      const saved = await body(
        api.PATCH('/api/v1/tenants/{tenant}/alerts/{alert_id}', {
          params: { path, header: ifMatch(etagOf(basis)) },
          body: mine,
        }),
      );
      if (saved.format === 'webhook' && basis.format !== 'webhook') await sign(saved);
      done(`Alert ${mine.name} saved`);
    } catch (error) {
      if (!isStatus(error, 412)) throw error;
      const theirs = await body(api.GET('/api/v1/tenants/{tenant}/alerts/{alert_id}', { params: { path } }));
      const choice = await new Promise<Choice>((choose) => setConflict({ mine, theirs, choose }));
      setConflict(null);
      if (choice === 'back') throw error;
      if (choice === 'mine') await update(mine, theirs);
    }
  }

  /** Shows the secret of an alert that became a webhook. */
  async function sign(saved: Alert) {
    const params = { path: { tenant, alert_id: saved.alert_id }, header: ifMatch(etagOf(saved)) };
    const { secret } = await body(api.POST('/api/v1/tenants/{tenant}/alerts/{alert_id}/rotate', { params }));
    if (secret) onSecret(secret);
  }

  async function save() {
    const wanted = wantedBy(values);
    if (alert) {
      await update(wanted, alert);
    } else {
      const created = await body(
        api.POST('/api/v1/tenants/{tenant}/alerts', { params: { path: { tenant } }, body: wanted }),
      );
      if (created.secret) onSecret(created.secret);
      else done(`Alert ${wanted.name} created`);
    }
    const read = changed(queries, tenant, 'alert');
    // A new alert does not wait for the list, or the form would stay open below the secret.
    if (alert) await read;
  }

  const form = (
    <FormDialog
      title={alert ? `Alert ${alert.name}` : 'New alert'}
      verb={alert ? 'Save' : 'Create alert'}
      disabled={values.rule_id === null}
      onClose={onClose}
      save={save}
    >
      {(wrong) => (
        <>
          {!alert && <QuotaNote tenant={tenant} thing="alerts" />}
          <TextInput
            label="Name"
            placeholder="Search abuse"
            required
            withAsterisk={false}
            data-autofocus
            {...getInputProps('name')}
            error={wrong('/name')}
          />
          <Condition
            form={draft}
            rules={rules}
            errors={{
              kind: wrong('/kind'),
              rule_id: wrong('/rule_id'),
              threshold: wrong('/threshold'),
              window_minutes: wrong('/window_minutes'),
              per: wrong('/per'),
            }}
          />
          <Preview tenant={tenant} condition={conditionIn(values)} rules={rules} />
          <Destination
            tenant={tenant}
            alert={alert}
            form={draft}
            errors={{
              format: wrong('/format'),
              url: wrong('/url'),
              routing_key: wrong('/routing_key'),
              email: wrong('/email'),
            }}
          />
          <Switch label="On" {...getInputProps('is_active', { type: 'checkbox' })} />
        </>
      )}
    </FormDialog>
  );
  return (
    <>
      {form}
      {conflict && (
        <ConflictDialog
          opened
          what="this alert"
          versions={alertVersions(conflict.mine, conflict.theirs, rules)}
          onKeepMine={() => conflict.choose('mine')}
          onTakeTheirs={() => conflict.choose('theirs')}
          onClose={() => conflict.choose('back')}
        />
      )}
    </>
  );
}
