import type { Check, Explanation, MatchedRule, Tier } from '~/api/types';
import type { TrySearch } from '~/search';
import { duration, exactNumber } from './format';
import { meterUnit } from './meter';

export function checkOf({ user, cost, costs, attributes, ...given }: TrySearch): Check {
  const requests = cost ? Number(cost) : undefined;
  const others = Object.fromEntries([...new URLSearchParams(costs)].map(([meter, text]) => [meter, Number(text)]));
  const named = Object.fromEntries(new URLSearchParams(attributes));
  const isPriced = Object.keys(others).length > 0;
  return {
    ...(user !== undefined && { user_id: user }),
    ...given,
    ...(requests !== undefined && !isPriced && { cost: requests }),
    ...(isPriced && { costs: { ...(requests !== undefined && { requests }), ...others } }),
    ...(Object.keys(named).length > 0 && { attributes: named }),
  };
}

/** The server has the last word. */
export function costProblem(text: string): string | undefined {
  if (text === '') return undefined;
  return /^\d+(\.\d{1,6})?$/.test(text) && Number(text) <= 1e9
    ? undefined
    : 'must be a number from 0 to 1,000,000,000 with at most 6 decimals';
}

/** The two lists of an explanation have the same order. */
export interface MatchedTier {
  rule: MatchedRule;
  tier: Tier;
  decides: boolean;
}

export function matchedTiers({ decision, rules }: Explanation): MatchedTier[] {
  return rules.flatMap((rule, index) => {
    const tier = decision.tiers[index];
    return tier ? [{ rule, tier, decides: rule.rule_id === decision.violated_rule_id }] : [];
  });
}

export function statusOf({ decision }: Explanation): { code: number; text: string } {
  if (decision.allowed) return { code: 200, text: 'OK' };
  return decision.reason === 'store_unavailable'
    ? { code: 503, text: 'Service Unavailable' }
    : { code: 429, text: 'Too Many Requests' };
}

export function verdict(explanation: Explanation): string {
  const { decision, rules } = explanation;
  const bypass = rules.find(({ action, mode }) => action === 'bypass' && mode === 'enforce');
  if (decision.allowed && bypass) return `Allowed by the bypass ${bypass.key_pattern}. No other rule applies.`;
  if (decision.allowed && rules.length > 0 && rules.every(({ mode }) => mode === 'shadow')) {
    return 'All matching rules are in shadow mode. They report, and deny nothing.';
  }
  if (decision.allowed && decision.remaining === null) return 'No rule limits this check.';
  if (decision.allowed) {
    const { remaining, limit } = decision;
    const unit = meterUnit(describedMeter(explanation)) || 'tokens';
    return `The tightest matching rule has ${exactNumber(remaining ?? 0)} of ${exactNumber(limit ?? 0)} ${unit} left.`;
  }
  const rule = deniedBy(explanation);
  switch (decision.reason) {
    case 'blocked':
      return `Blocked by ${rule}. Waiting does not help.`;
    case 'cost_exceeds_limit':
      return `The cost is higher than the bucket of ${rule} can hold. Waiting does not help.`;
    case 'concurrency_exceeded':
      return `All places of ${rule} are taken. A check gets one as soon as another is released.`;
    case 'reservations_exhausted':
      return 'The tenant has as many open reservations as it may. Settle some, or let them expire.';
    case 'store_unavailable':
      return `Redis is not responding, and ${rule} denies until it does.`;
    default: {
      const lacks = describedMeter(explanation) ? 'too little left' : 'too few tokens';
      return `${rule} has ${lacks}. It would be allowed in ${duration(decision.retry_after_ms ?? 0)}.`;
    }
  }
}

export function deniedBy({ decision, rules }: Explanation): string {
  const unit = meterUnit(rules.find(({ rule_id }) => rule_id === decision.violated_rule_id)?.meter);
  return `${decision.violated_rule ?? 'A rule'}${unit && ` (${unit})`}`;
}

/** The meter of the rule that the top level of an answer describes. */
export function describedMeter(explanation: Explanation): string | undefined {
  const tiers = matchedTiers(explanation);
  const decides = tiers.find((one) => one.decides);
  if (decides) return decides.rule.meter;
  const left = ({ tier }: MatchedTier) => (tier.remaining ?? 0) / (tier.limit ?? 1);
  const limits = tiers.filter(({ rule, tier }) => rule.mode === 'enforce' && tier.limit !== null);
  if (limits.some(({ rule }) => !rule.meter)) return undefined; // requests go first
  return limits.sort((a, b) => left(a) - left(b))[0]?.rule.meter;
}

export const planSources = {
  check: 'from the check',
  user: 'assigned to the user',
  tenant: 'tenant default',
} as const;
