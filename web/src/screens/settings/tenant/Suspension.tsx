import { Button } from '@mantine/core';
import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { changed } from '~/api/changes';
import type { Tagged } from '~/api/client';
import { suspension } from '~/api/suspension';
import type { Tenant } from '~/api/types';
import { ConfirmAction } from '~/components/ConfirmAction';
import { Outcome } from '~/components/Outcome';
import { Card } from '~/components/Page';
import styles from '../Settings.module.css';

export function Suspension({ saved: { value: tenant } }: { saved: Tagged<Tenant> }) {
  const queries = useQueryClient();
  const [asking, setAsking] = useState(false);
  const words = suspension(tenant);
  return (
    <Card title={tenant.suspended ? 'Suspended' : 'Service'}>
      <div className={styles.apart}>
        <div>
          <Outcome tone={tenant.suspended ? 'denied' : 'allowed'}>{tenant.suspended ? 'Suspended' : 'Active'}</Outcome>
          <p className={styles.dim} style={{ marginTop: 4 }}>
            {tenant.suspended
              ? 'Every check is refused with 403. Members can read, but not change anything.'
              : 'Checks are answered.'}
          </p>
        </div>
        <Button variant="default" onClick={() => setAsking(true)}>
          {words.verb} …
        </Button>
      </div>
      <ConfirmAction
        opened={asking}
        onClose={() => setAsking(false)}
        title={words.title}
        effect={words.effect}
        verb={words.verb}
        destructive={!tenant.suspended}
        action={async () => {
          await words.act();
          await changed(queries, tenant.slug, 'tenant');
        }}
      />
    </Card>
  );
}
