import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { changed } from '~/api/changes';
import type { Tagged } from '~/api/client';
import { suspension } from '~/api/suspension';
import type { Tenant } from '~/api/types';
import { ConfirmAction } from '~/components/ConfirmAction';
import { Outcome } from '~/components/Outcome';
import { SwitchCard } from './SwitchCard';

export function Suspension({ saved: { value: tenant } }: { saved: Tagged<Tenant> }) {
  const queries = useQueryClient();
  const [asking, setAsking] = useState(false);
  const words = suspension(tenant);
  return (
    <SwitchCard
      title={tenant.suspended ? 'Suspended' : 'Service'}
      state={
        <Outcome tone={tenant.suspended ? 'denied' : 'allowed'}>{tenant.suspended ? 'Suspended' : 'Active'}</Outcome>
      }
      note={
        tenant.suspended
          ? 'Every check is refused with 403. Members can read, but not change anything.'
          : 'Checks are answered.'
      }
      verb={words.verb}
      onSwitch={() => setAsking(true)}
    >
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
    </SwitchCard>
  );
}
