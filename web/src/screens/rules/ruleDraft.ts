import type { NewRule, Rule, RulePatch } from '~/api/types';
import { adaptOf, adaptText } from '~/domain/adapt';
import { algorithms, fitted, type LimitDraft, newLimit, noLimit } from '~/domain/algorithm';
import { exactNumber, exactTime } from '~/domain/format';
import { canBeChargedAfter, chargeLabels, requests } from '~/domain/meter';
import { perUnit, rateSentence } from '~/domain/rate';
import { actionLabels, failureModeLabels, fieldLabels, leaseLabels, modeLabels } from '~/domain/rule';
import { describeDuration, isCalendar } from '~/domain/window';

/** An unreadable number is NaN. */
export type RuleDraft = Pick<Rule, Exclude<keyof NewRule & keyof Rule, 'rate'>>;

export const newRule: RuleDraft = {
  key_pattern: 'user:{user_id}',
  name: '',
  plan: null,
  meter: requests,
  ...newLimit,
  adapt: null,
  mode: 'enforce',
  action: 'limit',
  charge: 'before',
  failure_mode: null,
  lease: 'auto',
  is_active: true,
  expires_at: null,
  description: '',
};

export function draftOf(rule: Rule): RuleDraft {
  return Object.fromEntries(Object.keys(newRule).map((field) => [field, rule[field as keyof RuleDraft]])) as never;
}

export function sayField(field: keyof RuleDraft, draft: RuleDraft): [string, string] {
  const known = changeable.find((one) => one === field);
  return known ? [fieldLabels[known], say(draft, known)] : [field, String(draft[field])];
}

export function copyOf(rule: Rule, rules: Rule[]): RuleDraft {
  const taken = (name: string) =>
    rules.some((one) => one.key_pattern === rule.key_pattern && one.plan === rule.plan && one.name === name);
  const base = [rule.name, 'copy'].filter(Boolean).join('-');
  let name = base;
  for (let number = 2; taken(name); number++) name = `${base}-${number}`;
  return { ...draftOf(rule), name, expires_at: null };
}

export function replayed(rule: Rule, draft: RuleDraft): NewRule {
  return creation({ ...copyOf({ ...rule, ...draft }, []), name: rule.name });
}

export function promoted(candidate: Rule, { name }: Rule): NewRule {
  return creation({ ...copyOf(candidate, []), name, mode: 'enforce', is_active: true });
}

export function stopsDenying(rule: Rule, draft: RuleDraft): boolean {
  const denies = ({ mode, is_active, action }: RuleDraft) => mode === 'enforce' && is_active && action !== 'bypass';
  return denies(rule) && !denies(draft);
}

const identity = ['key_pattern', 'name', 'plan'] as const;

const changeable = Object.keys(newRule).filter((field) => !identity.some((one) => one === field)) as Exclude<
  keyof RuleDraft,
  (typeof identity)[number]
>[];

const limits = Object.keys(newLimit) as (keyof LimitDraft)[];

export function limitOf(rule: LimitDraft): LimitDraft {
  return Object.fromEntries(limits.map((field) => [field, rule[field]])) as unknown as LimitDraft;
}

export function creation(draft: RuleDraft): NewRule {
  const usual: Partial<RuleDraft> = { lease: 'auto', meter: requests, expires_at: null };
  const rest = Object.fromEntries(
    Object.entries(draft).filter(
      ([field, value]) => !['adapt', 'charge', ...limits].includes(field) && usual[field as keyof RuleDraft] !== value,
    ),
  ) as Omit<RuleDraft, keyof LimitDraft | 'adapt' | 'lease' | 'meter' | 'charge'>;
  if (draft.action !== 'limit') return { ...rest, mode: modeOf(draft) };
  const limit = Object.entries(fitted(draft)).filter(
    ([field, value]) => value !== null && !(field === 'rate_per_second' && value === 0),
  );
  const adapt = adaptOf(draft, draft.adapt);
  const charge = chargeOf(draft);
  return { ...rest, ...Object.fromEntries(limit), ...(adapt && { adapt }), ...(charge === 'after' && { charge }) };
}

export function patch(rule: Rule, draft: RuleDraft): RulePatch {
  const wanted: RuleDraft = { ...draft, mode: modeOf(draft), charge: chargeOf(draft) };
  if (draft.action === 'limit') Object.assign(wanted, fitted(draft), { adapt: adaptOf(draft, draft.adapt) });
  else Object.assign(wanted, { ...fitted({ ...draft, algorithm: rule.algorithm }), ...noLimit });
  return Object.fromEntries(
    changeable.filter((field) => !same(wanted[field], rule[field])).map((field) => [field, wanted[field]]),
  );
}

function same(a: unknown, b: unknown): boolean {
  return JSON.stringify(a ?? null) === JSON.stringify(b ?? null);
}

function chargeOf({ action, algorithm, charge }: RuleDraft): Rule['charge'] {
  return action === 'limit' && canBeChargedAfter(algorithm) ? charge : 'before';
}

function modeOf({ action, mode }: RuleDraft): Rule['mode'] {
  return action === 'bypass' ? 'enforce' : mode; // a bypass has no shadow
}

export function isDirty(rule: Rule, draft: RuleDraft): boolean {
  return Object.keys(patch(rule, draft)).length > 0;
}

export interface FieldChange {
  label: string;
  from: string;
  to: string;
}

export function differences(before: RuleDraft, after: RuleDraft): FieldChange[] {
  const [old, now] = [plainOf(before), plainOf(after)];
  return changeable
    .filter((field) => !same(old[field], now[field]))
    .filter(
      (field) => field !== 'rate_unit' || (old.rate_per_second === now.rate_per_second && now.rate_per_second > 0),
    )
    .filter((field) => field !== 'algorithm' || old.action === 'limit' || now.action === 'limit')
    .map((field) => ({ label: fieldLabels[field], from: say(old, field), to: say(now, field) }));
}

/** The rule without what its action and algorithm cannot have. */
function plainOf(rule: RuleDraft): RuleDraft {
  return {
    ...rule,
    charge: chargeOf(rule),
    ...(rule.action === 'limit' ? { ...fitted(rule), adapt: adaptOf(rule, rule.adapt) } : noLimit),
  };
}

function say(rule: RuleDraft, field: (typeof changeable)[number]): string {
  switch (field) {
    case 'algorithm':
      return algorithms[rule.algorithm].label;
    case 'rate_per_second':
      return rule.rate_per_second > 0 ? rateSentence(rule) : 'none';
    case 'rate_unit':
      return perUnit(rule).unit;
    case 'burst_capacity':
      return rule.burst_capacity > 0 ? exactNumber(rule.burst_capacity) : 'none';
    case 'window':
      return isCalendar(rule.window) ? rule.window : rule.window ? describeDuration(rule.window) : 'none';
    case 'window_zone':
      return rule.window_zone ?? 'UTC';
    case 'window_start_day':
      return String(rule.window_start_day ?? 'first');
    case 'refill_interval':
      return rule.refill_interval ? describeDuration(rule.refill_interval) : 'continuous';
    case 'max_hold':
      return rule.max_hold ? describeDuration(rule.max_hold) : 'none';
    case 'notify_at':
      return sharesText(rule.notify_at) || 'none';
    case 'adapt':
      return adaptText(rule.adapt);
    case 'is_active':
      return rule.is_active ? 'on' : 'off';
    case 'expires_at':
      return rule.expires_at ? exactTime(Date.parse(rule.expires_at)) : 'never';
    case 'failure_mode':
      return rule.failure_mode ? failureModeLabels[rule.failure_mode] : 'Tenant default';
    case 'charge':
      return chargeLabels[rule.charge];
    case 'lease':
      return leaseLabels[rule.lease];
    case 'mode':
      return modeLabels[rule.mode];
    case 'action':
      return actionLabels[rule.action];
    default:
      return String(rule[field] || 'none');
  }
}

function sharesText(shares: number[]): string {
  return shares.map((share) => `${share} %`).join(', ');
}
