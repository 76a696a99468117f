import { Button, Group } from '@mantine/core';
import { queryOptions, useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { api } from '~/api/client';
import { sessionKey } from '~/api/queries';
import type { Enrolment } from '~/api/types';
import { ConfirmAction } from '~/components/ConfirmAction';
import { Outcome } from '~/components/Outcome';
import { Card } from '~/components/Page';
import { Query } from '~/components/Query';
import { RelativeTime } from '~/components/Time';
import { done, failed } from '~/components/toast';
import { plural } from '~/domain/format';
import { Enrol } from './Enrol';
import styles from './Profile.module.css';
import { RecoveryCodes } from './RecoveryCodes';
import { sessionsKey } from './SessionsCard';

const factorQuery = queryOptions({
  queryKey: ['second factor'],
  queryFn: ({ signal }) => api.get('/api/v1/account/second-factor', { signal }),
});

export function FactorCard() {
  const queries = useQueryClient();
  const factor = useQuery(factorQuery);
  const [enrolment, setEnrolment] = useState<Enrolment | null>(null);
  const [codes, setCodes] = useState<string[] | null>(null);
  const [asking, setAsking] = useState<'off' | 'codes' | null>(null);
  const refresh = () =>
    Promise.all(
      [sessionKey, sessionsKey, factorQuery.queryKey].map((queryKey) => queries.invalidateQueries({ queryKey })),
    );
  const begin = useMutation({
    mutationFn: () => api.post('/api/v1/account/second-factor'),
    onSuccess: setEnrolment,
    onError: (error) => failed('Could not begin', error),
  });
  const close = () => setAsking(null);

  return (
    <Card title="Second factor">
      <Query query={factor}>
        {({ enabled, since, recovery_codes, available }) =>
          enabled ? (
            <div className={styles.factor}>
              <div>
                <Outcome tone="allowed">On</Outcome>{' '}
                <span className={styles.detail}>since {since && <RelativeTime at={since} />}</span>
                <p className={styles.detail}>
                  {plural(recovery_codes, 'recovery code')} left
                  {recovery_codes < 3 && '. Make new ones before they run out'}
                </p>
              </div>
              <Group gap={8}>
                <Button variant="default" onClick={() => setAsking('codes')}>
                  New recovery codes …
                </Button>
                <Button variant="default" onClick={() => setAsking('off')}>
                  Turn off …
                </Button>
              </Group>
            </div>
          ) : available ? (
            <div className={styles.factor}>
              <p className={styles.detail}>Off</p>
              <Button variant="default" loading={begin.isPending} onClick={() => begin.mutate()}>
                Set up …
              </Button>
            </div>
          ) : (
            <p className={styles.detail}>
              Not available here: an operator has to set <code>SLUICE_SECRET_KEY</code> first.
            </p>
          )
        }
      </Query>
      {enrolment && (
        <Enrol
          enrolment={enrolment}
          onClose={() => setEnrolment(null)}
          onDone={async (made) => {
            setEnrolment(null);
            setCodes(made);
            await refresh();
          }}
        />
      )}
      {codes && <RecoveryCodes codes={codes} onClose={() => setCodes(null)} />}
      <ConfirmAction
        opened={asking === 'codes'}
        onClose={close}
        title="Make new recovery codes?"
        effect="Your present recovery codes stop working at once."
        verb="Make new codes"
        action={async () => {
          const made = await api.post('/api/v1/account/second-factor/recovery-codes');
          setCodes(made.recovery_codes);
          await refresh();
        }}
      />
      <ConfirmAction
        opened={asking === 'off'}
        onClose={close}
        title="Turn the second factor off?"
        effect="Your password alone will open your account. Tenants that require a second factor will be closed to you."
        verb="Turn off"
        destructive
        action={async () => {
          await api.delete('/api/v1/account/second-factor');
          await refresh();
          done('Second factor turned off');
        }}
      />
    </Card>
  );
}
