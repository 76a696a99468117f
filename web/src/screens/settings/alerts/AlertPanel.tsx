import { Button } from '@mantine/core';
import { useMutation, useQueryClient } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import { changed } from '~/api/changes';
import { api, etagOf } from '~/api/client';
import type { Alert } from '~/api/types';
import { ConfirmAction } from '~/components/ConfirmAction';
import { Facts } from '~/components/Facts';
import { SidePanel } from '~/components/SidePanel';
import { useNow } from '~/components/Time';
import { done, failed } from '~/components/toast';
import { exactTime } from '~/domain/format';
import { AlertState } from '~/features/alerts/AlertState';
import { SilenceButton } from '~/features/alerts/SilenceButton';
import { formatNames } from '~/features/alerts/versions';
import { conditionOf, silenceOf } from '~/features/alerts/words';
import { useRole } from '~/session';
import styles from './Alerts.module.css';
import { Deliveries } from './Deliveries';

interface Props {
  tenant: string;
  alert?: Alert;
  /** The rule with its plan; undefined for no rule in particular. */
  nameOf: (rule: string | null) => string | undefined;
  onEdit: (alert: Alert) => void;
  onSecret: (secret: string) => void;
  onClose: () => void;
}

export function AlertPanel({ alert, onClose, ...rest }: Props) {
  return (
    <SidePanel
      opened={alert !== undefined}
      onClose={onClose}
      title={alert?.name ?? ''}
      beside={alert && <AlertState alert={alert} />}
    >
      {alert && <Story alert={alert} onClose={onClose} {...rest} />}
    </SidePanel>
  );
}

function Story({ tenant, alert, nameOf, onEdit, onSecret, onClose }: Props & { alert: Alert }) {
  const { own } = useRole();
  const silence = silenceOf(alert, useNow(1000));
  return (
    <>
      {alert.rule_removed ? (
        <p>Its rule was removed, which turned the alert off. Edit it to watch another rule.</p>
      ) : (
        <p>Fires at {conditionOf(alert, nameOf(alert.rule_id))}.</p>
      )}
      <Facts
        facts={{
          Rule:
            alert.rule_id === null ? (
              alert.kind === 'degraded' ? (
                'All checks'
              ) : (
                'Any rule'
              )
            ) : alert.rule_removed ? (
              `${nameOf(alert.rule_id)}, removed`
            ) : (
              <Link to="/t/$tenant/rules/$rule" params={{ tenant, rule: String(alert.rule_id) }}>
                <code>{nameOf(alert.rule_id)}</code>
              </Link>
            ),
          [formatNames[alert.format]]:
            alert.format === 'pagerduty' ? 'Events API v2' : <code>{alert.email ?? alert.url}</code>,
        }}
      />
      {silence && (
        <p role="status">
          Silenced until {exactTime(Date.parse(silence.until))} by {silence.by}
          {silence.reason && `: ${silence.reason}`}.
        </p>
      )}
      {own && <Acts tenant={tenant} alert={alert} onEdit={onEdit} onSecret={onSecret} onClose={onClose} />}
      <Deliveries tenant={tenant} alert={alert} nameOf={nameOf} />
    </>
  );
}

type ActsProps = Pick<Props, 'tenant' | 'onEdit' | 'onSecret' | 'onClose'> & { alert: Alert };

function Acts({ tenant, alert, onEdit, onSecret, onClose }: ActsProps) {
  const queries = useQueryClient();
  const [asking, setAsking] = useState<'rotate' | 'remove' | null>(null);
  const path = { tenant, alert_id: alert.alert_id };
  const params = { ...path, etag: etagOf(alert) };
  const refresh = () => changed(queries, tenant, 'alert');

  const test = useMutation({
    mutationFn: () => api.post('/api/v1/tenants/{tenant}/alerts/{alert_id}/test', path),
    onSuccess: async () => {
      done('Test sent. See the deliveries');
      await refresh();
    },
    onError: (error) => failed('Could not send the test', error),
  });

  async function rotate() {
    const { secret } = await api.post('/api/v1/tenants/{tenant}/alerts/{alert_id}/rotate', params);
    await refresh();
    if (secret) onSecret(secret);
  }

  async function remove() {
    await api.delete('/api/v1/tenants/{tenant}/alerts/{alert_id}', params);
    onClose();
    await refresh();
    done(`Alert ${alert.name} removed`);
  }

  return (
    <div className={styles.acts}>
      <Button variant="default" onClick={() => onEdit(alert)}>
        Edit
      </Button>
      <Button variant="default" loading={test.isPending} onClick={() => test.mutate()}>
        Send a test
      </Button>
      <SilenceButton tenant={tenant} alert={alert} />
      {alert.format === 'webhook' && (
        <Button variant="default" onClick={() => setAsking('rotate')}>
          New secret …
        </Button>
      )}
      <Button variant="default" onClick={() => setAsking('remove')}>
        Remove …
      </Button>
      <ConfirmAction
        opened={asking === 'rotate'}
        onClose={() => setAsking(null)}
        title="Create a new signing secret?"
        effect="Webhooks are signed with the new secret at once. Update every receiver that verifies signatures."
        verb="Create secret"
        action={rotate}
      />
      <ConfirmAction
        opened={asking === 'remove'}
        onClose={() => setAsking(null)}
        title={`Remove ${alert.name}?`}
        effect="It stops firing, and its delivery history is removed."
        verb="Remove alert"
        destructive
        action={remove}
      />
    </div>
  );
}
