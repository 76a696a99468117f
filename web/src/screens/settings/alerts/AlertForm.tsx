import { Group, NativeSelect, NumberInput, Select, Switch, TextInput } from '@mantine/core';
import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { api, body, etagOf, ifMatch } from '~/api/client';
import { tenantKey } from '~/api/queries';
import type { Alert, Rule } from '~/api/types';
import { FormDialog } from '~/components/FormDialog';
import { done } from '~/components/toast';

interface Props {
  tenant: string;
  /** null: a new one. */
  alert: Alert | null;
  rules: Rule[];
  /** A new alert's secret, which is shown once. */
  onSecret: (secret: string) => void;
  onClose: () => void;
}

/** Makes an alert, or changes one. */
export function AlertForm({ tenant, alert, rules, onSecret, onClose }: Props) {
  const queries = useQueryClient();
  const [name, setName] = useState(alert?.name ?? '');
  const [rule, setRule] = useState<string | null>(alert ? String(alert.rule_id) : null);
  const [per, setPer] = useState<Alert['per']>(alert?.per ?? 'rule');
  const [threshold, setThreshold] = useState<number | string>(alert?.threshold ?? 1000);
  const [minutes, setMinutes] = useState<number | string>(alert?.window_minutes ?? 5);
  const [url, setUrl] = useState(alert?.url ?? '');
  const [active, setActive] = useState(alert?.is_active ?? true);

  async function save() {
    const wanted = {
      name,
      rule_id: Number(rule),
      per,
      threshold: Number(threshold),
      window_minutes: Number(minutes),
      url,
      is_active: active,
    };
    if (alert) {
      await body(
        api.PATCH('/api/v1/tenants/{tenant}/alerts/{alert_id}', {
          params: { path: { tenant, alert_id: alert.alert_id }, header: ifMatch(etagOf(alert)) },
          body: wanted,
        }),
      );
      done(`Alert ${name} saved`);
    } else {
      const created = await body(
        api.POST('/api/v1/tenants/{tenant}/alerts', { params: { path: { tenant } }, body: wanted }),
      );
      onSecret(created.secret);
    }
    const read = queries.invalidateQueries({ queryKey: tenantKey(tenant, 'alerts') });
    // Where a secret is shown the list is not waited for: the form would stay open below it.
    if (alert) await read;
  }

  return (
    <FormDialog
      title={alert ? `Alert ${alert.name}` : 'New alert'}
      verb={alert ? 'Save' : 'Make alert'}
      disabled={rule === null}
      onClose={onClose}
      save={save}
    >
      {(wrong) => (
        <>
          <TextInput
            label="Name"
            placeholder="Somebody hammers search"
            required
            withAsterisk={false}
            data-autofocus
            value={name}
            error={wrong('/name')}
            onChange={(event) => setName(event.currentTarget.value)}
          />
          <Select
            label="Rule"
            description="Of a shadow rule, what it would have denied counts"
            placeholder="Choose one"
            searchable
            data={rules.map((one) => ({ value: String(one.rule_id), label: ruleLabel(one) }))}
            value={rule}
            error={wrong('/rule_id')}
            onChange={setRule}
          />
          <Group grow gap={8} align="start">
            <NumberInput
              label="Denials"
              min={1}
              allowDecimal={false}
              thousandSeparator=","
              value={threshold}
              error={wrong('/threshold')}
              onChange={setThreshold}
            />
            <NumberInput
              label="Within"
              suffix=" min"
              min={1}
              max={60}
              allowDecimal={false}
              value={minutes}
              error={wrong('/window_minutes')}
              onChange={setMinutes}
            />
          </Group>
          <NativeSelect
            label="Counted"
            data={[
              { value: 'rule', label: 'All that the rule denies together' },
              { value: 'subject', label: 'Each subject (user, address) alone' },
            ]}
            value={per}
            error={wrong('/per')}
            onChange={(event) => setPer(event.currentTarget.value as Alert['per'])}
          />
          <TextInput
            label="Webhook"
            description="A public address; it gets a signed POST of JSON"
            placeholder="https://hooks.example.com/sluice"
            required
            withAsterisk={false}
            value={url}
            error={wrong('/url')}
            onChange={(event) => setUrl(event.currentTarget.value)}
          />
          <Switch label="On" checked={active} onChange={(event) => setActive(event.currentTarget.checked)} />
        </>
      )}
    </FormDialog>
  );
}

function ruleLabel({ key_pattern, name, plan }: Rule): string {
  return [key_pattern, name, plan].filter(Boolean).join(' · ');
}
