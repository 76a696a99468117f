import type { NewRule, Rule, RulePatch } from '~/api/types';
import { exactNumber } from '~/domain/format';
import { type Limit, perUnit, rateSentence } from '~/domain/rate';
import { actionLabels, failureModeLabels, fieldLabels, modeLabels } from '~/domain/rule';

/** A rule in its form. What cannot be read as a number is NaN. */
export type RuleDraft = Pick<
  Rule,
  | 'key_pattern'
  | 'name'
  | 'plan'
  | 'rate_per_second'
  | 'rate_unit'
  | 'burst_capacity'
  | 'mode'
  | 'action'
  | 'failure_mode'
  | 'is_active'
  | 'description'
>;

export const newRule: RuleDraft = {
  key_pattern: 'user:{user_id}',
  name: '',
  plan: null,
  rate_per_second: 10,
  rate_unit: 'second',
  burst_capacity: 50,
  mode: 'enforce',
  action: 'limit',
  failure_mode: null,
  is_active: true,
  description: '',
};

/** A rule that blocks an address or network. */
export function blockOf(ip: string): RuleDraft {
  const literal = ip.includes(':') ? `"${ip}"` : ip; // as IPv6 has it, in the pattern's own quotes
  return { ...newRule, key_pattern: `ip:${literal}`, action: 'block', rate_per_second: 0, burst_capacity: 0 };
}

/** A copy of a rule under a free name: "daily-copy", "candidate". */
export function copyOf(rule: Rule, rules: Rule[], mode?: 'shadow'): RuleDraft {
  const { key_pattern, plan, rate_per_second, rate_unit, burst_capacity } = rule;
  const { action, failure_mode, is_active, description } = rule;
  const taken = (name: string) =>
    rules.some((one) => one.key_pattern === key_pattern && one.plan === plan && one.name === name);
  const base = [rule.name, mode ? 'candidate' : 'copy'].filter(Boolean).join('-');
  let name = base;
  for (let number = 2; taken(name); number++) name = `${base}-${number}`;
  return {
    key_pattern,
    plan,
    name,
    rate_per_second,
    rate_unit,
    burst_capacity,
    action,
    failure_mode,
    is_active: mode ? true : is_active,
    description,
    mode: mode ?? rule.mode,
  };
}

/** Whether a draft stops a rule from denying. */
export function stopsDenying(rule: Rule, draft: RuleDraft): boolean {
  const denies = ({ mode, is_active, action }: RuleDraft) =>
    mode === 'enforce' && is_active && action !== 'bypass';
  return denies(rule) && !denies(draft);
}

/** The fields that can change. Pattern, plan and name identify the rule. */
const changeable = [
  'rate_per_second',
  'rate_unit',
  'burst_capacity',
  'mode',
  'action',
  'failure_mode',
  'is_active',
  'description',
] as const;

/** Fields that only limits have. */
const limits: readonly string[] = ['rate_per_second', 'burst_capacity'];

/** The body that creates the rule. Blocks and bypasses take no tokens. */
export function creation(draft: RuleDraft): NewRule {
  const { rate_per_second, burst_capacity, ...rest } = draft;
  return draft.action === 'limit' ? draft : { ...rest, mode: modeOf(draft) };
}

/** The body that updates the rule: the fields that differ. */
export function patch(rule: Rule, draft: RuleDraft): RulePatch {
  const wanted: RuleDraft = { ...draft, mode: modeOf(draft) };
  if (draft.action !== 'limit') Object.assign(wanted, { rate_per_second: 0, burst_capacity: 0 });
  return Object.fromEntries(
    changeable.filter((field) => wanted[field] !== rule[field]).map((field) => [field, wanted[field]]),
  );
}

function modeOf({ action, mode }: RuleDraft): Rule['mode'] {
  return action === 'bypass' ? 'enforce' : mode; // a bypass has no shadow
}

export function isDirty(rule: Rule, draft: RuleDraft): boolean {
  return Object.keys(patch(rule, draft)).length > 0;
}

/** Strict pacing: a bucket of one token, so that bursts are impossible. */
export function strictPacing(limit: Limit): Limit {
  return { ...limit, burst_capacity: 1 };
}

/** Burst credit: five idle minutes save up tokens for one burst. */
export function burstCredit(limit: Limit): Limit {
  return { ...limit, burst_capacity: Math.max(1, Math.round(limit.rate_per_second * 300)) };
}

export interface FieldChange {
  label: string;
  from: string;
  to: string;
}

/** The differences between two states of a rule, in words. */
export function differences(before: RuleDraft, after: RuleDraft): FieldChange[] {
  return changeable
    .filter((field) => before[field] !== after[field])
    .filter((field) => field !== 'rate_unit' || before.rate_per_second === after.rate_per_second)
    .filter((field) => !limits.includes(field) || after.action === 'limit' || before.action === 'limit')
    .map((field) => ({ label: fieldLabels[field], from: say(before, field), to: say(after, field) }));
}

function say(rule: RuleDraft, field: (typeof changeable)[number]): string {
  switch (field) {
    case 'rate_per_second':
      return rule.action === 'limit' ? rateSentence(rule) : 'none';
    case 'rate_unit':
      return perUnit(rule).unit;
    case 'burst_capacity':
      return rule.action === 'limit' ? exactNumber(rule.burst_capacity) : 'none';
    case 'is_active':
      return rule.is_active ? 'on' : 'off';
    case 'failure_mode':
      return rule.failure_mode ? failureModeLabels[rule.failure_mode] : 'Tenant default';
    case 'mode':
      return modeLabels[rule.mode];
    case 'action':
      return actionLabels[rule.action];
    default:
      return rule[field] || 'none';
  }
}
