import type { Check, Explanation, MatchedRule, Tier } from '~/api/types';
import type { TrySearch } from '~/search';
import { duration, exactNumber } from './format';

/** A check as it is asked for, from the texts that the address keeps. What is empty is left out. */
export function checkOf(search: TrySearch): Check {
  const check: Check = {};
  if (search.user) check.user_id = search.user;
  if (search.plan) check.plan = search.plan;
  if (search.endpoint) check.endpoint = search.endpoint;
  if (search.method) check.method = search.method;
  if (search.ip) check.ip = search.ip;
  if (search.cost) check.cost = Number(search.cost);
  const attributes = Object.fromEntries(new URLSearchParams(search.attributes));
  if (Object.keys(attributes).length > 0) check.attributes = attributes;
  return check;
}

/** What is wrong with a cost, as it follows the field's name; the server has the last word. */
export function costProblem(text: string): string | undefined {
  if (text === '') return undefined;
  return /^\d+(\.\d{1,6})?$/.test(text) && Number(text) <= 1e9
    ? undefined
    : 'must be a number from 0 to 1,000,000,000 with at most 6 decimals';
}

/** A matched rule with what it would say: the two lists of an explanation have the same order. */
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

/** The status that the check endpoint would answer with. */
export function statusOf({ decision }: Explanation): { code: number; text: string } {
  if (decision.allowed) return { code: 200, text: 'OK' };
  return decision.reason === 'store_unavailable'
    ? { code: 503, text: 'Service Unavailable' }
    : { code: 429, text: 'Too Many Requests' };
}

/** Why it passes or not, in one sentence. */
export function verdict(explanation: Explanation): string {
  const { decision, rules } = explanation;
  const bypass = rules.find(({ action, mode }) => action === 'bypass' && mode === 'enforce');
  if (decision.allowed && bypass) return `${bypass.key_pattern} lets it pass without any other rule.`;
  if (decision.allowed && rules.length > 0 && rules.every(({ mode }) => mode === 'shadow')) {
    return 'The rules that match it are in shadow: they report, and deny nothing.';
  }
  if (decision.allowed && decision.remaining === null) return 'No rule limits it.';
  if (decision.allowed) {
    const { remaining, limit } = decision;
    return `Of the rules that match, the tightest has ${exactNumber(remaining ?? 0)} of ${exactNumber(limit ?? 0)} tokens left.`;
  }
  const rule = decision.violated_rule ?? 'A rule';
  switch (decision.reason) {
    case 'blocked':
      return `${rule} blocks it. No wait ends that.`;
    case 'cost_exceeds_limit':
      return `It costs more than the whole bucket of ${rule} holds. No wait ends that.`;
    case 'store_unavailable':
      return `Redis does not answer, and ${rule} is closed meanwhile.`;
    default:
      return `${rule} lacks the tokens. It would pass in ${duration(decision.retry_after_ms ?? 0)} if nobody else takes any.`;
  }
}

/** Whose plan it is. */
export const planSources = {
  check: 'named by the check',
  user: 'assigned to the user',
  tenant: 'the tenant’s default',
} as const;
