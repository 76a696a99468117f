import type { Explanation, MatchedRule, Tier } from '~/api/types';

export function matched(rule_id: number, more: Partial<MatchedRule> = {}): MatchedRule {
  return {
    rule_id,
    name: '',
    scope: 'user',
    key_pattern: 'user:{user_id}',
    mode: 'enforce',
    plan: null,
    action: 'limit',
    failure_mode: 'local',
    rate_per_second: 10,
    burst_capacity: 50,
    algorithm: 'token_bucket',
    limit_text: '10 per second, bursts to 50',
    overridden: false,
    ...more,
  };
}

/** The explanation of a check that passes, unless the decision says otherwise; a tier for each rule. */
export function explanation(
  decision: Partial<Explanation['decision']> = {},
  rules: MatchedRule[] = [matched(12)],
  near_misses: Explanation['near_misses'] = [],
): Explanation {
  const tiers = rules.map(
    ({ rule_id, name, scope, key_pattern, meter, mode }): Tier => ({
      rule_id,
      name,
      scope,
      key_pattern,
      ...(meter && { meter }),
      mode,
      allowed: decision.violated_rule_id !== rule_id,
      limit: 50,
      remaining: decision.violated_rule_id === rule_id ? 0.65 : 50,
      retry_after_ms: decision.violated_rule_id === rule_id ? 35 : 0,
      reset_after_ms: 0,
    }),
  );
  return {
    decision: {
      allowed: true,
      plan: 'free',
      violated_tier: null,
      violated_rule: null,
      violated_rule_id: null,
      reason: null,
      retry_after_ms: 0,
      limit: 50,
      remaining: 50,
      reset_after_ms: 0,
      degraded: false,
      tiers,
      ...decision,
    },
    plan_source: 'tenant',
    enforcement: 'on',
    rules,
    near_misses,
    unmatched_meters: [],
    headers: [
      { name: 'RateLimit-Policy', value: '"user-12";q=50;w=5' },
      { name: 'RateLimit', value: '"user-12";r=50;t=0' },
    ],
  };
}
