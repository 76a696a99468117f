import type { NewRule, Rule } from '~/api/types';
import { newLimit } from '~/domain/algorithm';
import { type Group, groupNouns, groupPattern } from '~/domain/group';
import { lengthOf } from '~/domain/lengths';
import type { Limit } from '~/domain/rate';
import type { Draft as ForATime } from './ForATime';

export type Action = Rule['action'];

/** A group has at most one rule of this name. */
const ruleName = 'temporary';

export type Draft = ForATime<Action>;

export const limitToBegin: Limit = { ...newLimit, rate_per_second: 1, rate_unit: 'minute', burst_capacity: 60 };

export const verbs: Record<Action, string> = {
  block: 'Block',
  limit: 'Limit further',
  bypass: 'Let through',
};

export const participles: Record<Action, string> = {
  block: 'blocked',
  limit: 'limited',
  bypass: 'let through',
};

export function groupName({ by, value }: Group): string {
  return `${groupNouns[by]} ${value}`;
}

export function consequence({ action }: Draft, group: Group): string {
  const { by } = group;
  const all =
    by === 'endpoint' ? 'Every check of this endpoint, of all users,' : `Every check of this ${groupNouns[by]}`;
  switch (action) {
    case 'block':
      return `${all} is denied.`;
    case 'bypass':
      return `${all} is allowed, whatever other rules say.`;
    default:
      return `${all} shares one bucket with this limit. Other rules stay in force.`;
  }
}

export function temporaryRule(group: Group, draft: Draft): NewRule {
  return { key_pattern: groupPattern(group), name: ruleName, ...changeOf(draft) };
}

export function changeOf(draft: Draft) {
  const { rate_per_second, rate_unit, burst_capacity } = draft.limit;
  const expires_in_seconds = lengthOf(draft.length).ms / 1000;
  const base = { action: draft.action, mode: 'enforce' as const, is_active: true, expires_in_seconds };
  if (draft.action !== 'limit') return base;
  return { ...base, algorithm: 'token_bucket' as const, rate_per_second, rate_unit, burst_capacity };
}

export function savedRule(rules: Rule[], group: Group): Rule | undefined {
  const pattern = groupPattern(group);
  return rules.find(({ key_pattern, name, plan }) => key_pattern === pattern && name === ruleName && plan === null);
}
