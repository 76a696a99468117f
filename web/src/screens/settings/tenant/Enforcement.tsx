import { Button } from '@mantine/core';
import { useState } from 'react';
import type { Tenant } from '~/api/types';
import { InShadow } from '~/components/InShadow';
import { Outcome } from '~/components/Outcome';
import { Card } from '~/components/Page';
import { TurnEnforcement } from '~/components/TurnEnforcement';
import { useRole } from '~/session';
import styles from '../Settings.module.css';

export function EnforcementCard({ tenant }: { tenant: Tenant }) {
  const { own } = useRole();
  const [asking, setAsking] = useState(false);
  const on = tenant.enforcement === 'on';
  return (
    <Card title="Enforcement">
      <div className={styles.apart}>
        <div>
          {on ? <Outcome tone="allowed">On</Outcome> : <InShadow />}
          <p className={styles.dim} style={{ marginTop: 4 }}>
            {on
              ? 'Every rule uses its own mode.'
              : 'Every check is allowed. Rules only report what they would have denied.'}
          </p>
        </div>
        {own && (
          <Button variant="default" onClick={() => setAsking(true)}>
            {on ? 'Put in shadow …' : 'Enforce again …'}
          </Button>
        )}
      </div>
      <TurnEnforcement tenant={tenant} opened={asking} onClose={() => setAsking(false)} />
    </Card>
  );
}
