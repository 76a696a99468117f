import type { Quota, QuotaThing } from '~/api/types';
import { exactNumber } from './format';

export const quotaWords: Record<QuotaThing, { label: string; many: string; room: string }> = {
  plans: { label: 'Plans', many: 'plans', room: 'Remove some' },
  rules: { label: 'Rules', many: 'rules', room: 'Remove some' },
  overrides: { label: 'Overrides', many: 'overrides', room: 'Remove some, expired ones too' },
  users: {
    label: 'Users with a plan of their own',
    many: 'users with a plan of their own',
    room: 'Put some back on the default plan',
  },
  api_keys: { label: 'API keys', many: 'API keys', room: 'Revoke some that are no longer used' },
  alerts: { label: 'Alerts', many: 'alerts', room: 'Remove some' },
  members: { label: 'Members', many: 'members', room: 'Remove some' },
};

/** The part of a quota that is used, 0 to 1. */
export function usedShare({ held, allowed }: Quota): number {
  return allowed === 0 ? 1 : Math.min(1, held / allowed);
}

export function isFull({ held, allowed }: Quota): boolean {
  return held >= allowed;
}

/** "9,800 of 10,000" */
export function usedText({ held, allowed }: Quota): string {
  return `${exactNumber(held)} of ${exactNumber(allowed)}`;
}

export function fullText(quota: Quota): string {
  const { many, room } = quotaWords[quota.thing];
  const holds = `This tenant holds ${exactNumber(quota.held)} ${many} and may hold ${exactNumber(quota.allowed)}.`;
  return `${holds} ${room}, or ask a platform admin to raise its capacity.`;
}
