import { Button } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { useSearch } from '@tanstack/react-router';
import { useState } from 'react';
import { rulesQuery } from '~/api/queries';
import type { Alert } from '~/api/types';
import { type Column, DataTable } from '~/components/DataTable';
import { IconBell, IconPlus } from '~/components/icons';
import { Card } from '~/components/Page';
import { Query } from '~/components/Query';
import { EmptyState } from '~/components/states';
import { RelativeTime } from '~/components/Time';
import { here, usePanel } from '~/components/usePanel';
import { ruleLabel } from '~/domain/rule';
import { AlertForm } from '~/features/alerts/AlertForm';
import { AlertSecret } from '~/features/alerts/AlertSecret';
import { AlertState } from '~/features/alerts/AlertState';
import { alertsQuery } from '~/features/alerts/queries';
import { SilenceButton } from '~/features/alerts/SilenceButton';
import { formatNames } from '~/features/alerts/versions';
import { conditionOf } from '~/features/alerts/words';
import type { SettingsSearch } from '~/search';
import { useRole, useTenant } from '~/session';
import { AlertPanel } from './AlertPanel';

export default function Alerts() {
  const tenant = useTenant();
  const { own } = useRole();
  const { entry } = useSearch({ strict: false }) as SettingsSearch;
  const alerts = useQuery(alertsQuery(tenant));
  const rules = useQuery(rulesQuery(tenant));
  const [form, setForm] = useState<{ alert: Alert | null } | null>(null);
  const [secret, setSecret] = useState<string | null>(null);
  const open = usePanel<string>('entry');
  const nameOf = (id: string | null) => {
    if (id === null) return undefined;
    const rule = rules.data?.find(({ rule_id }) => rule_id === id);
    return rule ? `“${ruleLabel(rule)}”` : `rule ${id}`;
  };

  const columns: Column<Alert>[] = [
    { key: 'name', header: 'Alert', wraps: true, render: ({ name }) => <strong>{name}</strong> },
    {
      key: 'when',
      header: 'Condition',
      wide: true,
      under: true,
      wraps: true,
      width: '30%',
      render: (alert) => conditionOf(alert, nameOf(alert.rule_id)),
    },
    { key: 'to', header: 'Sent to', width: 96, under: true, render: ({ format }) => formatNames[format] },
    {
      key: 'raised',
      header: 'Fired',
      wide: true,
      under: true,
      width: 100,
      render: ({ raised_at }) => (raised_at ? <RelativeTime at={raised_at} /> : <span className="soft">Never</span>),
    },
    {
      key: 'state',
      header: 'State',
      wraps: true,
      width: 116,
      render: (alert) => <AlertState alert={alert} />,
    },
  ];
  if (own) {
    columns.push({
      key: 'silence',
      header: 'Silence',
      quiet: true,
      width: 130,
      render: (alert) => alert.is_active && <SilenceButton tenant={tenant} alert={alert} inList />,
    });
  }
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
              <EmptyState icon={IconBell} title="No alerts yet" action={create}>
                By webhook, Slack, PagerDuty or e-mail.
              </EmptyState>
            </Card>
          ) : (
            <Card flush title="Alerts" actions={create}>
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
        nameOf={nameOf}
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
