import type { Rule, User } from '~/api/types';
import { splitsByUser } from '~/domain/pattern';

/** Whether the rule looks at the user's checks that name no plan. */
export function applies({ plan }: Rule, user: Pick<User, 'plan'>): boolean {
  return plan === null || plan === user.plan;
}

/**
 * The rules that this user can have an override of: those of the user's plan and of all plans first. A check may
 * name another plan, so the rules of other plans can deny the user too.
 */
export function raisableRules(rules: Rule[], user: Pick<User, 'plan' | 'overrides'>): Rule[] {
  const overridden = (rule: Rule) => user.overrides.some(({ rule_id }) => rule_id === rule.rule_id);
  return rules
    .filter(({ action, key_pattern }) => action === 'limit' && splitsByUser(key_pattern))
    .filter((rule) => rule.is_active || overridden(rule))
    .toSorted((a, b) => Number(applies(b, user)) - Number(applies(a, user)));
}

/** The rule to begin with: the one that denied last, else the first. */
export function ruleToRaise(raisable: Rule[], { recent_violations }: Pick<User, 'recent_violations'>) {
  const denied = recent_violations.find(
    ({ mode, rule_id }) => mode === 'enforce' && raisable.some((rule) => rule.rule_id === rule_id),
  );
  return denied?.rule_id ?? raisable[0]?.rule_id;
}
