import { Button } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import { rulesQuery } from '~/api/queries';
import type { Rule } from '~/api/types';
import { Card } from '~/components/Page';
import { Query } from '~/components/Query';
import { AlertForm } from '~/features/alerts/AlertForm';
import { AlertSecret } from '~/features/alerts/AlertSecret';
import { AlertState } from '~/features/alerts/AlertState';
import { alertsQuery } from '~/features/alerts/queries';
import { SilenceButton } from '~/features/alerts/SilenceButton';
import { conditionOf } from '~/features/alerts/words';
import { useRole } from '~/session';
import styles from './Rules.module.css';

export function RuleAlerts({ tenant, rule }: { tenant: string; rule: Rule }) {
  const { own } = useRole();
  const alerts = useQuery(alertsQuery(tenant));
  const { data: rules } = useQuery(rulesQuery(tenant));
  const [adding, setAdding] = useState(false);
  const [secret, setSecret] = useState<string | null>(null);
  return (
    <Card
      title="Alerts"
      actions={
        own && (
          <Button variant="default" onClick={() => setAdding(true)}>
            Alert on this rule
          </Button>
        )
      }
    >
      <Query query={alerts}>
        {(all) => {
          const watching = all.filter(({ rule_id }) => rule_id === null || rule_id === rule.rule_id);
          if (watching.length === 0) return <p className="soft">Nobody is told when this rule denies checks.</p>;
          return (
            <ul className={styles.alerts}>
              {watching.map((alert) => (
                <li key={alert.alert_id}>
                  <AlertState alert={alert} />
                  <div>
                    <Link
                      to="/t/$tenant/settings/$section"
                      params={{ tenant, section: 'alerts' }}
                      search={{ entry: alert.alert_id }}
                    >
                      {alert.name}
                    </Link>
                    <div className="soft">{conditionOf(alert, alert.rule_id === null ? undefined : 'this rule')}</div>
                  </div>
                  {own && alert.is_active && <SilenceButton tenant={tenant} alert={alert} inList />}
                </li>
              ))}
            </ul>
          );
        }}
      </Query>
      {adding && (
        <AlertForm
          tenant={tenant}
          alert={null}
          rule={rule.rule_id}
          rules={rules ?? [rule]}
          onSecret={setSecret}
          onClose={() => setAdding(false)}
        />
      )}
      {secret && <AlertSecret secret={secret} onClose={() => setSecret(null)} />}
    </Card>
  );
}
