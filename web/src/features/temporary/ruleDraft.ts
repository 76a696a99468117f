import { serverNow } from '~/api/clock';
import type { Rule, RulePatch } from '~/api/types';
import { noLimit } from '~/domain/algorithm';
import { isOn } from '~/domain/group';
import { hasRate, isValid, type Limit, times } from '~/domain/rate';

export type RuleAction = 'pass' | 'limit' | 'block' | 'enforce';

export const ruleVerbs: Record<RuleAction, string> = {
  pass: 'Let through',
  limit: 'Change limit',
  block: 'Block',
  enforce: 'Enforce',
};

export function actionsOf(rule: Rule): RuleAction[] {
  const { action, mode } = rule;
  if (!isOn(rule, serverNow()) || action === 'bypass') return [];
  if (mode === 'shadow') return ['enforce'];
  return action === 'block' ? ['pass'] : ['pass', 'limit', 'block'];
}

export function limitToBegin(rule: Rule): Limit {
  const double = times(rule, 2);
  return isValid(double) ? double : rule;
}

export function changeOfRule(action: RuleAction, rule: Rule, limit: Limit): RulePatch {
  switch (action) {
    case 'pass':
      return { mode: 'shadow' };
    case 'enforce':
      return { mode: 'enforce' };
    case 'block':
      return { action: 'block', ...noLimit };
    default: {
      const { rate_per_second, rate_unit, burst_capacity } = limit;
      return hasRate(rule.algorithm) ? { rate_per_second, rate_unit, burst_capacity } : { burst_capacity };
    }
  }
}

export const ruleConsequence: Record<RuleAction, string> = {
  pass: 'The rule denies nobody and goes on in shadow mode. Other rules stay in force.',
  limit: 'The rule has this limit. Its buckets keep their tokens.',
  block: 'Every check that the rule matches is denied, unless another rule lets it through.',
  enforce: 'The rule denies what it only reports now.',
};
