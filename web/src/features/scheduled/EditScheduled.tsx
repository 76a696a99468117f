import { useState } from 'react';
import type { Rule, RulePatch, ScheduledChange } from '~/api/types';
import { LimitPair } from '~/components/LimitPair';
import { isValid } from '~/domain/rate';
import { ScheduleDialog } from './ScheduleDialog';

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
  return (
    <ScheduleDialog
      tenant={tenant}
      rules={seen.map(({ rule_id, version }, index) => ({ rule_id, version, change: patches[index] ?? {} }))}
      replaces={change}
      disabled={ofLimit && !isValid(one)}
      onClose={onClose}
      onScheduled={onClose}
    >
      {ofLimit ? <LimitPair limit={one} onChange={edit} /> : <strong>{change.title}</strong>}
    </ScheduleDialog>
  );
}
