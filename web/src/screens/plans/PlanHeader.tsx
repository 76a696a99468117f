import { ActionIcon, Menu, Tooltip } from '@mantine/core';
import { useState } from 'react';
import type { Plan } from '~/api/types';
import { IconArrowLeft, IconArrowRight, IconDots, IconMultiply, IconPencil, IconTrash } from '~/components/icons';
import { Num } from '~/components/Num';
import styles from './Matrix.module.css';
import { PlanForm } from './PlanForm';
import { RemovePlan } from './RemovePlan';

interface Props {
  tenant: string;
  plan: Plan;
  plans: Plan[];
  editable: boolean;
  /** null while not all limits are known. */
  onMultiply: (() => void) | null;
  onMove: (plan: Plan, to: number) => void;
}

export function PlanHeader({ tenant, plan, plans, editable, onMultiply, onMove }: Props) {
  const [open, setOpen] = useState<'edit' | 'remove' | null>(null);
  const close = () => setOpen(null);
  const at = plans.indexOf(plan);

  return (
    <div className={styles.plan}>
      <div className={styles.planText}>
        <Tooltip label={plan.description} disabled={plan.description === ''}>
          <span>{plan.name}</span>
        </Tooltip>
        <span className={styles.users}>{plan.is_default ? 'default' : <Num value={plan.users} unit="assigned" />}</span>
      </div>
      {editable && (
        <Menu position="bottom-end">
          <Menu.Target>
            <ActionIcon size={24} aria-label={`Plan ${plan.name}`}>
              <IconDots size={15} />
            </ActionIcon>
          </Menu.Target>
          <Menu.Dropdown>
            <Menu.Item
              leftSection={<IconMultiply size={15} />}
              disabled={!onMultiply}
              onClick={onMultiply ?? undefined}
            >
              Copy or multiply limits
            </Menu.Item>
            {at > 0 && (
              <Menu.Item leftSection={<IconArrowLeft size={15} />} onClick={() => onMove(plan, at - 1)}>
                Move left
              </Menu.Item>
            )}
            {at < plans.length - 1 && (
              <Menu.Item leftSection={<IconArrowRight size={15} />} onClick={() => onMove(plan, at + 1)}>
                Move right
              </Menu.Item>
            )}
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
      {open === 'remove' && <RemovePlan tenant={tenant} plan={plan} plans={plans} onClose={close} />}
    </div>
  );
}
