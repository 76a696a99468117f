import { useState } from 'react';
import type { Rule, RulePatch, ScheduledChange } from '~/api/types';
import { BurstInput } from '~/components/BurstInput';
import { RateInput } from '~/components/RateInput';
import { algorithms } from '~/domain/algorithm';
import { hasRate, isValid, limitProblems } from '~/domain/rate';
import { ScheduleDialog } from './ScheduleDialog';
import styles from './scheduled.module.css';

interface Props {
  tenant: string;
  change: ScheduledChange;
  /** As they are now, in the order of the change. */
  rules: Rule[];
  onClose: () => void;
}

export function EditScheduled({ tenant, change, rules, onClose }: Props) {
  const [seen] = useState(rules);
  const [patches, setPatches] = useState(() => change.rules.map((one) => one.change as RulePatch));
  const [rule] = seen;
  const one = seen.length === 1 && rule ? ({ ...rule, ...patches[0] } as Rule) : null;
  const ofLimit = one?.action === 'limit';
  const edit = (part: RulePatch) => setPatches(([first]) => [{ ...first, ...part }]);
  const wrong = ofLimit ? limitProblems(one) : {};
  return (
    <ScheduleDialog
      tenant={tenant}
      rules={seen.map(({ rule_id, version }, index) => ({ rule_id, version, change: patches[index] ?? {} }))}
      replaces={change}
      disabled={ofLimit && !isValid(one)}
      onClose={onClose}
      onScheduled={onClose}
    >
      {ofLimit ? (
        <div className={styles.form}>
          {hasRate(one.algorithm) && (
            <RateInput label="Rate" value={one} error={wrong.rate} onChange={(rate) => edit(rate)} />
          )}
          <BurstInput
            label={algorithms[one.algorithm].burst}
            value={one.burst_capacity}
            error={wrong.burst}
            onChange={(burst_capacity) => edit({ burst_capacity })}
          />
        </div>
      ) : (
        <strong>{change.title}</strong>
      )}
    </ScheduleDialog>
  );
}
