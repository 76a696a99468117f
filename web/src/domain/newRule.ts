import type { NewRule, Rule } from '~/api/types';
import { requests } from './meter';
import { shapeOf } from './rate';

export function newRuleOf(rule: Rule): NewRule {
  const { key_pattern, name, plan, action, mode, is_active } = rule;
  const base = { key_pattern, name, plan, action, mode, is_active };
  if (action !== 'limit') return base;
  const { meter, charge, rate_per_second, rate_unit, burst_capacity, notify_at } = rule;
  return {
    ...base,
    rate_unit,
    burst_capacity,
    ...(rate_per_second > 0 && { rate_per_second }),
    ...Object.fromEntries(Object.entries(shapeOf(rule)).filter(([, value]) => value !== null)),
    ...(meter !== requests && { meter }),
    ...(charge === 'after' && { charge }),
    ...(notify_at.length > 0 && { notify_at }),
  };
}

/** "user:{user_id} [free] daily" */
export function identityText({ key_pattern, plan, name }: Pick<Rule, 'key_pattern' | 'plan' | 'name'>): string {
  return [key_pattern, plan !== null && `[${plan}]`, name].filter(Boolean).join(' ');
}
