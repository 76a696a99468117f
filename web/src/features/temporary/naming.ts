import type { Rule } from '~/api/types';
import { parsePattern } from '~/domain/pattern';

export function rulesNaming(rules: Rule[], user: string): Rule[] {
  const rank = { bypass: 0, block: 1, limit: 2 };
  return rules
    .filter((rule) => rule.is_active && names(rule, user))
    .toSorted((a, b) => rank[a.action] - rank[b.action]);
}

function names({ key_pattern }: Rule, user: string): boolean {
  if (!key_pattern.includes('user:')) return false;
  const { segments = [] } = parsePattern(key_pattern);
  return segments.some(({ field, each, below, value }) => field === 'user' && !each && !below && value === user);
}

/** Whether a rule is also of an endpoint or a plan. */
export function isPartly({ key_pattern, plan }: Rule): boolean {
  return plan !== null || (parsePattern(key_pattern).segments?.length ?? 0) > 1;
}
