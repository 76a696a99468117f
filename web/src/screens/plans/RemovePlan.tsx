import { Select } from '@mantine/core';
import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { changed } from '~/api/changes';
import { api, etagOf } from '~/api/client';
import type { Plan } from '~/api/types';
import { undoOf } from '~/api/undo';
import { FormDialog } from '~/components/FormDialog';
import { done } from '~/components/toast';
import { plural } from '~/domain/format';

interface Props {
  tenant: string;
  plan: Plan;
  plans: Plan[];
  onClose: () => void;
}

export function RemovePlan({ tenant, plan, plans, onClose }: Props) {
  const queries = useQueryClient();
  const others = plans.filter(({ name }) => name !== plan.name);
  const [to, setTo] = useState((others.find(({ is_default }) => is_default) ?? others[0])?.name ?? null);
  const isUsed = plan.users + plan.rules > 0;

  async function remove() {
    const removed = await api.delete('/api/v1/tenants/{tenant}/plans/{plan}', {
      tenant,
      plan: plan.name,
      ...(isUsed ? { users_to: to ?? undefined } : {}),
      etag: etagOf(plan),
    });
    await changed(queries, tenant, 'plan', 'rule', 'user');
    done(`Plan ${plan.name} removed`, undoOf(tenant, removed));
  }

  return (
    <FormDialog
      title={`Remove the plan ${plan.name}?`}
      lead={removal(plan)}
      verb="Remove plan"
      destructive
      disabled={plan.is_default || (isUsed && to === null)}
      onClose={onClose}
      save={remove}
    >
      {(wrong) =>
        !plan.is_default &&
        plan.users > 0 && (
          <Select
            label={`Move its ${plural(plan.users, 'user')} to`}
            allowDeselect={false}
            value={to}
            onChange={setTo}
            data={others.map(({ name }) => name)}
            error={wrong('/users_to')}
          />
        )
      }
    </FormDialog>
  );
}

function removal({ is_default, rules }: Plan): string {
  if (is_default) return 'It is the default plan. Choose another one in Settings first.';
  const ofRules =
    rules === 0
      ? 'It has no rules.'
      : `Also removes ${plural(rules, 'rule')} and ${rules === 1 ? 'its' : 'their'} overrides.`;
  return `${ofRules} Checks that name this plan then fail as invalid; from Envoy they count as naming no plan.`;
}
