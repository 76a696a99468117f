import { Button } from '@mantine/core';
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { useState } from 'react';
import { api } from '~/api/client';
import { sessionKey } from '~/api/queries';
import type { SessionItem } from '~/api/types';
import { ConfirmAction } from '~/components/ConfirmAction';
import { Outcome } from '~/components/Outcome';
import { Card } from '~/components/Page';
import { Query } from '~/components/Query';
import { RelativeTime } from '~/components/Time';
import { done, failed } from '~/components/toast';
import { browserOf } from '~/domain/browser';
import { plural } from '~/domain/format';
import styles from './Profile.module.css';

export const sessionsKey = ['sessions'] as const;

export function SessionsCard() {
  const queries = useQueryClient();
  const navigate = useNavigate();
  const [asking, setAsking] = useState(false);
  const sessions = useQuery({
    queryKey: sessionsKey,
    queryFn: async ({ signal }) => (await api.get('/api/v1/sessions', { signal })).items,
  });

  async function everywhere() {
    await api.delete('/api/v1/sessions');
    queries.clear();
    queries.setQueryData(sessionKey, null);
    await navigate({ to: '/sign-in' });
  }

  const count = sessions.data?.length ?? 0;
  return (
    <Card
      flush
      title="Sessions"
      actions={
        <Button variant="default" onClick={() => setAsking(true)}>
          Sign out everywhere …
        </Button>
      }
    >
      <Query query={sessions}>
        {(items) => (
          <ul className={styles.sessions}>
            {items.map((session) => (
              <Session key={session.session_id} session={session} />
            ))}
          </ul>
        )}
      </Query>
      <ConfirmAction
        opened={asking}
        onClose={() => setAsking(false)}
        title="Sign out everywhere?"
        effect={`Ends ${count > 1 ? `all ${plural(count, 'session')}` : 'your session'} at once, including this one.`}
        verb="Sign out everywhere"
        destructive
        action={everywhere}
      />
    </Card>
  );
}

function Session({ session }: { session: SessionItem }) {
  const { session_id, current, user_agent, ip, created_at, last_seen_at } = session;
  const queries = useQueryClient();
  const end = useMutation({
    mutationFn: () => api.delete('/api/v1/sessions/{session_id}', { session_id }),
    onSuccess: () => done('Session ended'),
    onError: (error) => failed('Could not end the session', error),
    onSettled: () => queries.invalidateQueries({ queryKey: sessionsKey }),
  });
  return (
    <li>
      <div>
        <div>
          <strong>{browserOf(user_agent)}</strong> {current && <Outcome tone="allowed">This session</Outcome>}
        </div>
        <div className={styles.detail}>
          {ip && <>{ip} · </>}
          signed in <RelativeTime at={created_at} />
          {!current && (
            <>
              , last seen <RelativeTime at={last_seen_at} />
            </>
          )}
        </div>
      </div>
      {!current && (
        <Button variant="default" loading={end.isPending} onClick={() => end.mutate()}>
          End
        </Button>
      )}
    </li>
  );
}
