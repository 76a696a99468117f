import { useState } from 'react';
import type { Tenant } from '~/api/types';
import { InShadow } from '~/components/InShadow';
import { Outcome } from '~/components/Outcome';
import { TurnEnforcement } from '~/components/TurnEnforcement';
import { useRole } from '~/session';
import { SwitchCard } from './SwitchCard';

export function EnforcementCard({ tenant }: { tenant: Tenant }) {
  const { own } = useRole();
  const [asking, setAsking] = useState(false);
  const on = tenant.enforcement === 'on';
  return (
    <SwitchCard
      title="Enforcement"
      state={on ? <Outcome tone="allowed">On</Outcome> : <InShadow />}
      note={
        on ? 'Every rule uses its own mode.' : 'Every check is allowed. Rules only report what they would have denied.'
      }
      verb={on ? 'Put in shadow' : 'Enforce again'}
      onSwitch={own ? () => setAsking(true) : undefined}
    >
      <TurnEnforcement tenant={tenant} opened={asking} onClose={() => setAsking(false)} />
    </SwitchCard>
  );
}
