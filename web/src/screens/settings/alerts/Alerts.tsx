import { Button } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { useSearch } from '@tanstack/react-router';
import { useState } from 'react';
import { rulesQuery } from '~/api/queries';
import type { Alert } from '~/api/types';
import { type Column, DataTable } from '~/components/DataTable';
import { IconBell, IconPlus } from '~/components/icons';
import { Outcome } from '~/components/Outcome';
import { Card } from '~/components/Page';
import { Query } from '~/components/Query';
import { EmptyState } from '~/components/states';
import { here, usePanel } from '~/components/usePanel';
import { AlertForm } from '~/features/alerts/AlertForm';
import { AlertSecret } from '~/features/alerts/AlertSecret';
import { alertsQuery } from '~/features/alerts/queries';
import { formatNames } from '~/features/alerts/versions';
import { conditionOf } from '~/features/alerts/words';
import type { SettingsSearch } from '~/search';
import { useRole, useTenant } from '~/session';
import { AlertPanel } from './AlertPanel';

/** Alerts and their deliveries. */
export default function Alerts() {
  const tenant = useTenant();
  const { own } = useRole();
  const { entry } = useSearch({ strict: false }) as SettingsSearch;
  const alerts = useQuery(alertsQuery(tenant));
  const rules = useQuery(rulesQuery(tenant));
  const [form, setForm] = useState<{ alert: Alert | null } | null>(null);
  const [secret, setSecret] = useState<string | null>(null);
  const open = usePanel<number>('entry');
  const patternOf = (id: number) =>
    rules.data?.find(({ rule_id }) => rule_id === id)?.key_pattern ?? `rule ${id}`;

  const columns: Column<Alert>[] = [
    { key: 'name', header: 'Alert', render: ({ name }) => <strong>{name}</strong> },
    {
      key: 'when',
      header: 'Condition',
      wide: true,
      width: '40%',
      render: (alert) => conditionOf(alert, patternOf(alert.rule_id)),
    },
    { key: 'to', header: 'Sent to', width: 110, render: ({ format }) => formatNames[format] },
    {
      key: 'state',
      header: 'State',
      width: 100,
      render: ({ is_active }) =>
        is_active ? <Outcome tone="allowed">On</Outcome> : <Outcome tone="neutral">Off</Outcome>,
    },
  ];
  const create = own && (
    <Button leftSection={<IconPlus size={15} aria-hidden />} onClick={() => setForm({ alert: null })}>
      New alert
    </Button>
  );

  return (
    <>
      <Query query={alerts}>
        {(items) =>
          items.length === 0 ? (
            <Card>
              <EmptyState icon={<IconBell size={20} aria-hidden />} title="No alerts yet" action={create}>
                An alert tells you when a rule denies more than you expect: an attack, or a customer who has
                outgrown a plan. By webhook, Slack, PagerDuty or e-mail.
              </EmptyState>
            </Card>
          ) : (
            <Card
              flush
              title="Alerts"
              lead="Messages that are sent when a rule denies too many checks."
              actions={create}
            >
              <DataTable
                label="Alerts"
                columns={columns}
                rows={items}
                rowKey={({ alert_id }) => alert_id}
                open={entry}
                to={({ alert_id }) => here({ entry: alert_id })}
                onOpen={({ alert_id }) => open(alert_id)}
              />
            </Card>
          )
        }
      </Query>
      <AlertPanel
        tenant={tenant}
        alert={alerts.data?.find(({ alert_id }) => alert_id === entry)}
        patternOf={patternOf}
        onEdit={(alert) => setForm({ alert })}
        onSecret={setSecret}
        onClose={() => open(undefined)}
      />
      {form && (
        <AlertForm
          tenant={tenant}
          alert={form.alert}
          rules={rules.data ?? []}
          onSecret={setSecret}
          onClose={() => setForm(null)}
        />
      )}
      {secret && <AlertSecret secret={secret} onClose={() => setSecret(null)} />}
    </>
  );
}
