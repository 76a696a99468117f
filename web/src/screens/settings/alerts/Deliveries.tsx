import { Button } from '@mantine/core';
import { useInfiniteQuery } from '@tanstack/react-query';
import type { AlertDelivery } from '~/api/types';
import { Num } from '~/components/Num';
import { Outcome } from '~/components/Outcome';
import { Query } from '~/components/Query';
import { RelativeTime } from '~/components/Time';
import styles from './Alerts.module.css';
import { deliveriesQuery } from './queries';
import { detailOf, outcomeOf } from './words';

/** The webhooks that an alert sent, and what became of each. */
export function Deliveries({ tenant, alert }: { tenant: string; alert: number }) {
  const deliveries = useInfiniteQuery(deliveriesQuery(tenant, alert));
  return (
    <section>
      <h3>Deliveries</h3>
      <Query query={deliveries}>
        {({ pages }) => {
          const items = pages.flatMap((page) => page.items);
          if (items.length === 0)
            return <p className="soft">None yet. A test shows whether the webhook answers.</p>;
          return (
            <ul className={styles.deliveries}>
              {items.map((delivery) => (
                <Delivery key={delivery.delivery_id} delivery={delivery} />
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
          Earlier ones
        </Button>
      )}
    </section>
  );
}

function Delivery({ delivery }: { delivery: AlertDelivery }) {
  const { tone, word } = outcomeOf(delivery);
  const { is_test, subject, denied, raised_at, next_attempt_at } = delivery;
  return (
    <li>
      <Outcome tone={tone}>{word}</Outcome>
      <div>
        <div>
          {is_test ? (
            'A test'
          ) : (
            <>
              <Num value={denied} /> denied{subject !== null && ` of ${subject}`}
            </>
          )}{' '}
          · <RelativeTime at={raised_at} />
        </div>
        <div className={styles.detail}>
          {detailOf(delivery)}
          {next_attempt_at && (
            <>
              , again <RelativeTime at={next_attempt_at} />
            </>
          )}
        </div>
      </div>
    </li>
  );
}
