import { Button } from '@mantine/core';
import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { changed } from '~/api/changes';
import { api, ifMatch, type Tagged } from '~/api/client';
import type { Tenant } from '~/api/types';
import { ConfirmAction } from '~/components/ConfirmAction';
import { Outcome } from '~/components/Outcome';
import { Card } from '~/components/Page';
import { useRole, useSession } from '~/session';
import styles from '../Settings.module.css';

/** Whether members need a second factor to reach the tenant. */
export function SecondFactorCard({ saved: { value: tenant, etag } }: { saved: Tagged<Tenant> }) {
  const { own } = useRole();
  const { account } = useSession();
  const queries = useQueryClient();
  const [asking, setAsking] = useState(false);
  const required = tenant.settings.require_second_factor;
  return (
    <Card title="Second factor" lead="Members sign in with a one-time code besides their password.">
      <div className={styles.apart}>
        <div>
          <Outcome tone={required ? 'allowed' : 'neutral'}>{required ? 'Required' : 'Optional'}</Outcome>
          <p className={styles.dim} style={{ marginTop: 4 }}>
            {required
              ? 'Members without one reach nothing of this tenant until they have set one up. API keys are not affected.'
              : 'Each member decides. API keys are not affected either way.'}
          </p>
        </div>
        {own && (
          <Button variant="default" onClick={() => setAsking(true)}>
            {required ? 'Make optional …' : 'Require …'}
          </Button>
        )}
      </div>
      <ConfirmAction
        opened={asking}
        onClose={() => setAsking(false)}
        title={required ? 'Make the second factor optional?' : 'Require a second factor?'}
        effect={
          required
            ? 'A stolen password alone will open this tenant to whoever has it.'
            : account.second_factor
              ? 'Members without one lose access at once, until they have set one up on their profile.'
              : 'Set up your own on your profile first; otherwise you would lose access yourself.'
        }
        verb={required ? 'Make optional' : 'Require'}
        destructive={required}
        action={async () => {
          await api.PATCH('/api/v1/tenants/{tenant}', {
            params: { path: { tenant: tenant.slug }, header: ifMatch(etag) },
            body: { settings: { require_second_factor: !required } },
          });
          await changed(queries, tenant.slug, 'tenant');
        }}
      />
    </Card>
  );
}
