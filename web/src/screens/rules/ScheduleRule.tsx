import type { Rule, RulePatch } from '~/api/types';
import { Effect } from '~/components/Effect';
import { ScheduleDialog } from '~/features/scheduled/ScheduleDialog';
import styles from './Rules.module.css';
import { copyOf, creation, differences, patch, type RuleDraft } from './ruleDraft';

interface Props {
  tenant: string;
  rule: Rule;
  draft: RuleDraft;
  onClose: () => void;
  onScheduled: () => void;
}

/** Schedules a draft of a rule. */
export function ScheduleRule({ tenant, rule, draft, onClose, onScheduled }: Props) {
  const { rule_id, version } = rule;
  return (
    <ScheduleDialog
      tenant={tenant}
      rules={[{ rule_id, version, change: patch(rule, draft) as RulePatch }]}
      onClose={onClose}
      onScheduled={onScheduled}
    >
      <div className={styles.changes}>
        {differences(rule, draft).map(({ label, from: was, to }) => (
          <span key={label}>
            {label}: <s>{was}</s> <strong>{to}</strong>
          </span>
        ))}
      </div>
      <Effect
        tenant={tenant}
        question={{ rules: [creation({ ...copyOf({ ...rule, ...draft }, []), name: rule.name })] }}
      />
    </ScheduleDialog>
  );
}
