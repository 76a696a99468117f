import type { NewRule, Rule } from '~/api/types';

/** A saved rule as the body that would create it, for what looks at its effect. */
export function newRuleOf(rule: Rule): NewRule {
  const { key_pattern, name, plan, action, mode, is_active } = rule;
  const base = { key_pattern, name, plan, action, mode, is_active };
  if (action !== 'limit') return base;
  const { algorithm, rate_unit, burst_capacity, notify_at } = rule;
  const { rate_per_second, window, window_zone, window_start_day, refill_interval, max_hold } = rule;
  const parts = { window, window_zone, window_start_day, refill_interval, max_hold };
  return {
    ...base,
    algorithm,
    rate_unit,
    burst_capacity,
    ...(rate_per_second > 0 && { rate_per_second }),
    ...Object.fromEntries(Object.entries(parts).filter(([, value]) => value !== null)),
    ...(notify_at.length > 0 && { notify_at }),
  };
}

/** A rule as replays and effects name it: "user:{user_id} [free] daily". */
export function identityText({ key_pattern, plan, name }: Pick<Rule, 'key_pattern' | 'plan' | 'name'>): string {
  return [key_pattern, plan !== null && `[${plan}]`, name].filter(Boolean).join(' ');
}
