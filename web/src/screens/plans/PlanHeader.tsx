import { ActionIcon, Menu, Tooltip } from '@mantine/core';
import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { changed } from '~/api/changes';
import { api, etagOf } from '~/api/client';
import type { Plan } from '~/api/types';
import { ConfirmAction } from '~/components/ConfirmAction';
import { IconDots, IconMultiply, IconPencil, IconTrash } from '~/components/icons';
import { Num } from '~/components/Num';
import { done } from '~/components/toast';
import { plural } from '~/domain/format';
import styles from './Matrix.module.css';
import { PlanForm } from './PlanForm';

interface Props {
  tenant: string;
  plan: Plan;
  editable: boolean;
  onMultiply: () => void;
}

export function PlanHeader({ tenant, plan, editable, onMultiply }: Props) {
  const queries = useQueryClient();
  const [open, setOpen] = useState<'edit' | 'remove' | null>(null);
  const close = () => setOpen(null);

  async function remove() {
    await api.DELETE('/api/v1/tenants/{tenant}/plans/{plan}', {
      params: { path: { tenant, plan: plan.name }, header: { 'If-Match': etagOf(plan) } },
    });
    await changed(queries, tenant, 'plan');
    done(`Plan ${plan.name} removed`);
  }

  return (
    <div className={styles.plan}>
      <div className={styles.planText}>
        <Tooltip label={plan.description} disabled={plan.description === ''}>
          <span>{plan.name}</span>
        </Tooltip>
        <span className={styles.users}>
          {plan.is_default ? 'default' : <Num value={plan.users} unit={plan.users === 1 ? 'user' : 'users'} />}
        </span>
      </div>
      {editable && (
        <Menu position="bottom-end">
          <Menu.Target>
            <ActionIcon size={24} aria-label={`Plan ${plan.name}`}>
              <IconDots size={15} />
            </ActionIcon>
          </Menu.Target>
          <Menu.Dropdown>
            <Menu.Item leftSection={<IconMultiply size={15} />} onClick={onMultiply}>
              Multiply limits
            </Menu.Item>
            <Menu.Item leftSection={<IconPencil size={15} />} onClick={() => setOpen('edit')}>
              Edit plan
            </Menu.Item>
            <Menu.Item leftSection={<IconTrash size={15} />} onClick={() => setOpen('remove')}>
              Remove plan
            </Menu.Item>
          </Menu.Dropdown>
        </Menu>
      )}
      {open === 'edit' && <PlanForm tenant={tenant} plan={plan} onClose={close} />}
      <ConfirmAction
        opened={open === 'remove'}
        onClose={close}
        title={`Remove the plan ${plan.name}?`}
        effect={removal(plan)}
        verb="Remove plan"
        destructive
        action={remove}
      />
    </div>
  );
}

function removal(plan: Plan): string {
  const holds = [
    plan.users > 0 && plural(plan.users, 'user'),
    plan.rules > 0 && plural(plan.rules, 'rule'),
    plan.is_default && 'it is the default plan',
  ].filter(Boolean);
  if (holds.length === 0) return 'The plan has no users and no rules. No limit changes.';
  return `The plan is in use: ${holds.join(', ')}. Move them to another plan first.`;
}
