import type { Rule } from '~/api/types';
import { meterUnit } from './meter';
import { patternInWords } from './pattern';
import { type Limit, limitSentence } from './rate';

/** Without a meter it counts requests. */
export type Named = Pick<Rule, 'key_pattern' | 'name' | 'plan'> & { meter?: string };

/** "daily", "input tokens", "USD · monthly", or "". An unnamed rule of another meter is called by its meter. */
export function ruleName({ name, meter }: Pick<Named, 'name' | 'meter'>): string {
  const unit = meterUnit(meter);
  return [unit, unit && name === meter ? '' : name].filter(Boolean).join(' · ');
}

export function ruleTitle(rule: Omit<Named, 'plan'>): string {
  return [patternInWords(rule.key_pattern), ruleName(rule)].filter(Boolean).join(' · ');
}

export function ruleLabel(rule: Named & Partial<Pick<Rule, 'mode' | 'is_active'>>): string {
  const state = rule.is_active === false ? 'off' : rule.mode === 'shadow' && 'shadow';
  return [ruleTitle(rule), rule.plan ?? 'all plans', state].filter(Boolean).join(' · ');
}

// A pattern has a space between a method and its endpoint, and within quotes.
const identityParts = /^((?:endpoint:[A-Z]+ (?=[/{"*])|"(?:[^"\\]|\\.)*"|\S)+)(?: \[(\S+)\])?(?: (.+))?$/;

/** The server names rules by their identity: "user:{user_id} [pro] daily". */
export function identityLabel(identity: string): string {
  const [, key_pattern, plan = null, name = ''] = identityParts.exec(identity) ?? [];
  return key_pattern ? ruleLabel({ key_pattern, name, plan }) : identity;
}

export function ruleDetail(rule: Omit<Named, 'key_pattern'>): string {
  return [ruleName(rule), rule.plan ?? 'all plans'].filter(Boolean).join(' · ');
}

export function ruleEffect(rule: Limit & Pick<Rule, 'action'>): string {
  return rule.action === 'limit' ? limitSentence(rule) : actionLabels[rule.action];
}

export const actionLabels: Record<Rule['action'], string> = {
  limit: 'Limited',
  block: 'Always denied',
  bypass: 'Always allowed',
};

export const scopeLabels: Record<Rule['scope'], string> = {
  user: 'User',
  endpoint: 'Endpoint',
  ip: 'IP address',
  global: 'Global',
};

export const modeLabels: Record<Rule['mode'], string> = { enforce: 'Enforced', shadow: 'Shadow' };

export const failureModeLabels: Record<NonNullable<Rule['failure_mode']>, string> = {
  local: 'Limit per process',
  open: 'Allow requests',
  closed: 'Deny requests (503)',
};

export const leaseLabels: Record<Rule['lease'], string> = {
  auto: 'When busy',
  never: 'Never',
};

export const fieldLabels = {
  key_pattern: 'Pattern',
  name: 'Name',
  plan: 'Plan',
  meter: 'Counts',
  algorithm: 'Algorithm',
  rate_per_second: 'Rate',
  rate_unit: 'Unit',
  burst_capacity: 'Burst',
  window: 'Window',
  window_zone: 'Time zone',
  window_start_day: 'Starts on day',
  refill_interval: 'Refill interval',
  max_hold: 'Longest hold',
  notify_at: 'Record usage at',
  adapt: 'Adapts to',
  mode: 'Mode',
  action: 'Action',
  charge: 'Charged',
  failure_mode: 'When Redis is unavailable',
  lease: 'Leases',
  is_active: 'State',
  expires_at: 'Ends',
  description: 'Description',
} as const;

export interface Choice {
  value: string;
  label: string;
}

export function choicesOf(labels: Record<string, string>): Choice[] {
  return Object.entries(labels).map(([value, label]) => ({ value, label }));
}
