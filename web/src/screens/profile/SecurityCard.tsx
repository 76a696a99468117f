import { useInfiniteQuery } from '@tanstack/react-query';
import { api } from '~/api/client';
import { pagesQuery, rowsOf } from '~/api/pages';
import type { SecurityEvent } from '~/api/types';
import { Outcome } from '~/components/Outcome';
import { Card } from '~/components/Page';
import { Query } from '~/components/Query';
import { ShowMore } from '~/components/ShowMore';
import { EmptyState } from '~/components/states';
import { RelativeTime } from '~/components/Time';
import { browserOf } from '~/domain/browser';
import { byWhom, foldEqual, titleOf } from '~/domain/security';
import styles from './Profile.module.css';

const pageSize = 25;
const minute = 60_000;

export function SecurityCard() {
  const events = useInfiniteQuery({
    ...pagesQuery(['own security log'], (cursor, signal) =>
      api.get('/api/v1/account/security-log', { limit: pageSize, cursor, signal }),
    ),
    select: rowsOf<SecurityEvent>,
  });
  return (
    <Card flush title="Recent sign-ins" lead="Change your password if something here was not you.">
      <Query query={events}>
        {(rows) => {
          if (rows.length === 0) return <EmptyState title="Nothing yet" />;
          return (
            <>
              <ul className={styles.sessions}>
                {foldEqual(rows).map((event) => (
                  <li key={event.event_id}>
                    <div>
                      <div>
                        {event.succeeded ? (
                          <strong>{titleOf(event)}</strong>
                        ) : (
                          <Outcome tone="denied">{titleOf(event)}</Outcome>
                        )}
                        {byWhom(event) && <span className="soft"> {byWhom(event)}</span>}
                        {event.tenant && <span className="soft"> in {event.tenant}</span>}
                      </div>
                      <div className={styles.detail}>
                        {event.ip && <>{event.ip} · </>}
                        {(event.ip || event.user_agent) && <>{browserOf(event.user_agent)} · </>}
                        {Date.parse(event.at) - Date.parse(event.since) >= minute && (
                          <>
                            first <RelativeTime at={event.since} />, last{' '}
                          </>
                        )}
                        <RelativeTime at={event.at} />
                      </div>
                    </div>
                  </li>
                ))}
              </ul>
              <ShowMore list={events} rows={rows} noun="event" />
            </>
          );
        }}
      </Query>
    </Card>
  );
}
