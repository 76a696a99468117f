import { useQuery } from '@tanstack/react-query';
import { scheduledQuery } from '~/api/scheduled';
import type { Rule, ScheduledChange, ScheduledRule } from '~/api/types';
import { Card } from '~/components/Page';
import { Awaited } from '~/components/states';
import { ScheduledList } from '~/features/scheduled/ScheduledList';
import styles from './Rules.module.css';
import { differences, type FieldChange } from './ruleDraft';

export function ScheduledCard({ tenant, rule }: { tenant: string; rule: Rule }) {
  const { data: all = [], isPending } = useQuery(scheduledQuery(tenant, rule.rule_id));
  if (isPending) return <Awaited />;
  if (all.length === 0) return null;
  return (
    <Card title="Scheduled changes" flush>
      <ScheduledList
        tenant={tenant}
        changes={all}
        rules={new Map([[rule.rule_id, rule]])}
        what={(change) => <OfRule rule={rule} change={change} />}
      />
    </Card>
  );
}

function OfRule({ rule, change }: { rule: Rule; change: ScheduledChange }) {
  const own = change.rules.find(({ rule_id }) => rule_id === rule.rule_id);
  if (!own) return null;
  return (
    <div className={styles.changes}>
      {changeWords(rule, own).map(({ label, to }) => (
        <span key={label}>
          {label}: <strong>{to}</strong>
        </span>
      ))}
      {change.rules.length > 1 && <span className="soft">One of {change.title}</span>}
      {own.failure && own.failure !== change.failure && <span className={styles.warning}>{own.failure}</span>}
    </div>
  );
}

function changeWords(rule: Rule, { change }: Pick<ScheduledRule, 'change'>): FieldChange[] {
  const after: Rule = { ...rule, ...change };
  const usual = differences({ ...after, ...otherThan(after, change) }, after);
  const named = new Set(usual.map(({ label }) => label));
  return [...usual, ...differences(rule, after).filter(({ label }) => !named.has(label))];
}

/** Other values for the usual fields of a change, so that they count as differences. */
function otherThan(rule: Rule, change: ScheduledRule['change']): Partial<Rule> {
  return {
    ...(change.mode && { mode: rule.mode === 'shadow' ? ('enforce' as const) : ('shadow' as const) }),
    ...(change.is_active !== undefined && { is_active: !rule.is_active }),
    ...(change.burst_capacity !== undefined && { burst_capacity: rule.burst_capacity + 1 }),
    ...(change.rate_per_second !== undefined && { rate_per_second: rule.rate_per_second + 1 }),
  };
}
