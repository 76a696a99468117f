import type { Rule } from '~/api/types';

type Named = Pick<Rule, 'key_pattern' | 'name' | 'plan'> & Partial<Pick<Rule, 'mode' | 'is_active'>>;

/** A rule in a list or a choice: "user:{user_id} · daily · pro · shadow". */
export function ruleLabel({ key_pattern, name, plan, mode, is_active }: Named): string {
  const state = is_active === false ? 'off' : mode === 'shadow' && 'shadow';
  return [key_pattern, name, plan ?? 'all plans', state].filter(Boolean).join(' · ');
}
