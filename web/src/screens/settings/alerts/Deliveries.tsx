import { Button } from '@mantine/core';
import { useInfiniteQuery, useMutation, useQueryClient } from '@tanstack/react-query';
import { api } from '~/api/client';
import type { Alert, AlertDelivery } from '~/api/types';
import { Outcome } from '~/components/Outcome';
import { Query } from '~/components/Query';
import { RelativeTime } from '~/components/Time';
import { failed } from '~/components/toast';
import { deliveriesQuery } from '~/features/alerts/queries';
import { countedText, detailOf, outcomeOf } from '~/features/alerts/words';
import { useRole } from '~/session';
import styles from './Alerts.module.css';

interface DeliveriesProps {
  tenant: string;
  alert: Alert;
  nameOf: (rule: string | null) => string | undefined;
}

export function Deliveries({ tenant, alert, nameOf }: DeliveriesProps) {
  const deliveries = useInfiniteQuery(deliveriesQuery(tenant, alert.alert_id));
  return (
    <section>
      <h3>Deliveries</h3>
      <Query query={deliveries}>
        {(items) => {
          if (items.length === 0) return <p className="soft">No deliveries yet.</p>;
          return (
            <ul className={styles.deliveries}>
              {items.map((delivery) => (
                <Delivery
                  key={delivery.delivery_id}
                  tenant={tenant}
                  alert={alert}
                  delivery={delivery}
                  nameOf={nameOf}
                />
              ))}
            </ul>
          );
        }}
      </Query>
      {deliveries.hasNextPage && (
        <Button
          variant="subtle"
          color="gray"
          loading={deliveries.isFetchingNextPage}
          onClick={() => deliveries.fetchNextPage()}
        >
          Show more
        </Button>
      )}
    </section>
  );
}

function Delivery({ tenant, alert, delivery, nameOf }: DeliveriesProps & { delivery: AlertDelivery }) {
  const { own } = useRole();
  const { tone, word } = outcomeOf(delivery);
  const { is_test, kind, rule_id, subject, denied, raised_at, next_attempt_at } = delivery;
  const rule = rule_id === alert.rule_id ? undefined : nameOf(rule_id);
  return (
    <li>
      <Outcome tone={tone}>{word}</Outcome>
      <div>
        <div>
          {is_test ? (
            'Test'
          ) : (
            <>
              {countedText(kind, denied)}
              {subject !== null && ` of ${subject}`}
              {rule && ` by ${rule}`}
            </>
          )}{' '}
          · <RelativeTime at={raised_at} />
        </div>
        <div className={styles.detail}>
          {detailOf(delivery)}
          {next_attempt_at && (
            <>
              , next attempt <RelativeTime at={next_attempt_at} />
            </>
          )}
          {own && next_attempt_at && (
            <RetryNow tenant={tenant} alert={alert.alert_id} delivery={delivery.delivery_id} />
          )}
        </div>
      </div>
    </li>
  );
}

function RetryNow({ tenant, alert, delivery }: { tenant: string; alert: string; delivery: string }) {
  const queries = useQueryClient();
  const path = { tenant, alert_id: alert, delivery_id: delivery };
  const retry = useMutation({
    mutationFn: () => api.post('/api/v1/tenants/{tenant}/alerts/{alert_id}/deliveries/{delivery_id}/retry', path),
    onError: (error) => failed('Could not retry the delivery', error),
    onSettled: () => queries.invalidateQueries({ queryKey: deliveriesQuery(tenant, alert).queryKey }),
  });
  return (
    <>
      {' '}
      <Button variant="subtle" size="compact-xs" loading={retry.isPending} onClick={() => retry.mutate()}>
        Retry now
      </Button>
    </>
  );
}
