import type { Rule, ScheduledRule } from '~/api/types';
import { differences, type FieldChange } from './ruleDraft';

export function changeWords(rule: Rule, { change }: Pick<ScheduledRule, 'change'>): FieldChange[] {
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
