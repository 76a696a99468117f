import type { Rule, Top, TopBy } from '~/api/types';
import { printPattern } from './pattern';

export interface Group {
  by: Exclude<TopBy, 'rule'>;
  value: string;
}

export const groupNouns: Record<TopBy, string> = {
  user: 'user',
  ip: 'address',
  network: 'network',
  endpoint: 'endpoint',
  rule: 'rule',
};

export function groupPattern({ by, value }: Group): string {
  return printPattern([{ field: by === 'network' ? 'ip' : by, each: false, value }]);
}

export function groupFilter({ by, value }: { by: TopBy; value: string }) {
  if (by === 'rule') return { rule: value };
  return { [by === 'network' ? 'ip' : by]: value };
}

export function hasExpired({ expires_at }: Pick<Rule, 'expires_at'>, now: number): boolean {
  return expires_at !== null && Date.parse(expires_at) <= now;
}

export function isOn(rule: Pick<Rule, 'is_active' | 'expires_at'>, now: number): boolean {
  return rule.is_active && !hasExpired(rule, now);
}

export function isLowerBound({ unattributed, looked_back_to }: Pick<Top, 'unattributed' | 'looked_back_to'>): boolean {
  return unattributed > 0 || looked_back_to !== null;
}
