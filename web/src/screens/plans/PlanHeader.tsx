import { Tooltip } from '@mantine/core';
import { useState } from 'react';
import type { Plan } from '~/api/types';
import { IconArrowLeft, IconArrowRight, IconMultiply, IconPencil, IconTrash } from '~/components/icons';
import { Act, MoreMenu } from '~/components/MoreMenu';
import { Num } from '~/components/Num';
import styles from './Matrix.module.css';
import { PlanForm } from './PlanForm';
import { RemovePlan } from './RemovePlan';

interface Props {
  tenant: string;
  plan: Plan;
  plans: Plan[];
  editable: boolean;
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
        <MoreMenu label={`Plan ${plan.name}`} size={24}>
          <Act icon={IconMultiply} disabled={!onMultiply} onClick={onMultiply ?? undefined}>
            Copy or multiply limits
          </Act>
          {at > 0 && (
            <Act icon={IconArrowLeft} onClick={() => onMove(plan, at - 1)}>
              Move left
            </Act>
          )}
          {at < plans.length - 1 && (
            <Act icon={IconArrowRight} onClick={() => onMove(plan, at + 1)}>
              Move right
            </Act>
          )}
          <Act icon={IconPencil} onClick={() => setOpen('edit')}>
            Edit plan
          </Act>
          <Act icon={IconTrash} onClick={() => setOpen('remove')}>
            Remove plan
          </Act>
        </MoreMenu>
      )}
      {open === 'edit' && <PlanForm tenant={tenant} plan={plan} onClose={close} />}
      {open === 'remove' && <RemovePlan tenant={tenant} plan={plan} plans={plans} onClose={close} />}
    </div>
  );
}
