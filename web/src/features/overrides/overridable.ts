import { serverNow } from '~/api/clock';
import type { Rule, User } from '~/api/types';
import { planOfChecks } from '~/api/user';
import { isOn } from '~/domain/group';
import { splitsByUser } from '~/domain/pattern';

const hour = 3_600_000;

export function applies(rule: Rule, plan: string | null): boolean {
  return rule.plan === null || rule.plan === plan;
}

export function isOverridable({ action, key_pattern }: Rule): boolean {
  return action === 'limit' && splitsByUser(key_pattern);
}

/** A check may name another plan than the user's, so the rules of other plans are listed too, at the end. */
export function overridableRules(rules: Rule[], user: Pick<User, 'plan' | 'sent_plan' | 'overrides'>): Rule[] {
  const plan = planOfChecks(user);
  const hasOverride = (rule: Rule) => user.overrides.some(({ rule_id }) => rule_id === rule.rule_id);
  return rules
    .filter((rule) => isOverridable(rule) && (isOn(rule, serverNow()) || hasOverride(rule)))
    .toSorted((a, b) => Number(applies(b, plan)) - Number(applies(a, plan)));
}

/** The enforced rule with the most denials in the hour before the user's last one. */
export function denyingRule(rules: Rule[], { recent_violations }: Pick<User, 'recent_violations'>): string | undefined {
  const denials = recent_violations.filter(
    ({ mode, rule_id }) => mode === 'enforce' && rules.some((rule) => rule.rule_id === rule_id),
  );
  const last = Math.max(...denials.map(({ last_at }) => Date.parse(last_at)));
  const counts = new Map<string, number>();
  for (const { rule_id, count, last_at } of denials) {
    if (last - Date.parse(last_at) < hour) counts.set(rule_id, (counts.get(rule_id) ?? 0) + count);
  }
  const [most] = [...counts].toSorted(([, a], [, b]) => b - a);
  return most?.[0];
}
