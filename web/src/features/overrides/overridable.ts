import type { Rule, User } from '~/api/types';
import { splitsByUser } from '~/domain/pattern';

/** Whether the rule matches checks of users on the plan, unless a check names another plan. */
export function applies(rule: Rule, plan: string | null): boolean {
  return rule.plan === null || rule.plan === plan;
}

/** Whether users can have overrides of the rule. */
export function isOverridable({ action, key_pattern }: Rule): boolean {
  return action === 'limit' && splitsByUser(key_pattern);
}

/**
 * The rules that this user can have an override of; those that apply to the user's plan come first. A check may name
 * another plan, so the rules of other plans can deny the user too.
 */
export function overridableRules(rules: Rule[], user: Pick<User, 'plan' | 'overrides'>): Rule[] {
  const hasOverride = (rule: Rule) => user.overrides.some(({ rule_id }) => rule_id === rule.rule_id);
  return rules
    .filter((rule) => isOverridable(rule) && (rule.is_active || hasOverride(rule)))
    .toSorted((a, b) => Number(applies(b, user.plan)) - Number(applies(a, user.plan)));
}

/** The rule to begin with: the one that denied last, else the first. */
export function ruleToOverride(rules: Rule[], { recent_violations }: Pick<User, 'recent_violations'>) {
  const denied = recent_violations.find(
    ({ mode, rule_id }) => mode === 'enforce' && rules.some((rule) => rule.rule_id === rule_id),
  );
  return denied?.rule_id ?? rules[0]?.rule_id;
}
