import { Button } from '@mantine/core';
import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { changed } from '~/api/changes';
import { suspension } from '~/api/suspension';
import type { Tenant } from '~/api/types';
import { ConfirmAction } from '~/components/ConfirmAction';
import { InShadow } from '~/components/InShadow';
import { Outcome } from '~/components/Outcome';
import { Card } from '~/components/Page';
import { TurnEnforcement } from '~/components/TurnEnforcement';
import { useRole } from '~/session';
import styles from '../Settings.module.css';

interface Asked {
  opened: boolean;
  onClose: () => void;
}

interface Props {
  title: string;
  state: React.ReactNode;
  note: string;
  verb: string;
  may: boolean;
  children: (asked: Asked) => React.ReactNode;
}

export function SwitchCard({ title, state, note, verb, may, children }: Props) {
  const [opened, setOpened] = useState(false);
  return (
    <Card title={title}>
      <div className={styles.apart}>
        <div>
          {state}
          <p className={styles.dim} style={{ marginTop: 4 }}>
            {note}
          </p>
        </div>
        {may && (
          <Button variant="default" onClick={() => setOpened(true)}>
            {verb} …
          </Button>
        )}
      </div>
      {children({ opened, onClose: () => setOpened(false) })}
    </Card>
  );
}

export function EnforcementCard({ tenant }: { tenant: Tenant }) {
  const { own } = useRole();
  const on = tenant.enforcement === 'on';
  return (
    <SwitchCard
      title="Enforcement"
      state={on ? <Outcome tone="allowed">On</Outcome> : <InShadow />}
      note={
        on ? 'Every rule uses its own mode.' : 'Every check is allowed. Rules only report what they would have denied.'
      }
      verb={on ? 'Put in shadow' : 'Enforce again'}
      may={own}
    >
      {(asked) => <TurnEnforcement tenant={tenant} {...asked} />}
    </SwitchCard>
  );
}

export function SuspensionCard({ tenant }: { tenant: Tenant }) {
  const queries = useQueryClient();
  const { title, effect, verb, act } = suspension(tenant);
  const { suspended } = tenant;
  return (
    <SwitchCard
      title={suspended ? 'Suspended' : 'Service'}
      state={<Outcome tone={suspended ? 'denied' : 'allowed'}>{suspended ? 'Suspended' : 'Active'}</Outcome>}
      note={
        suspended
          ? 'Every check is refused with 403. Members can read, but not change anything.'
          : 'Checks are answered.'
      }
      verb={verb}
      may
    >
      {(asked) => (
        <ConfirmAction
          {...asked}
          title={title}
          effect={effect}
          verb={verb}
          destructive={!suspended}
          action={async () => {
            await act();
            await changed(queries, tenant.slug, 'tenant');
          }}
        />
      )}
    </SwitchCard>
  );
}
