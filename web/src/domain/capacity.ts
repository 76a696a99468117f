import type { CapacityThing, ThingCapacity } from '~/api/types';
import { exactNumber } from './format';

export const capacityWords: Record<CapacityThing, { label: string; many: string; room: string }> = {
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

export function usedShare({ held, allowed }: ThingCapacity): number {
  return allowed === 0 ? 1 : Math.min(1, held / allowed);
}

export function isFull({ held, allowed }: ThingCapacity): boolean {
  return held >= allowed;
}

export function usedText({ held, allowed }: ThingCapacity): string {
  return `${exactNumber(held)} of ${exactNumber(allowed)}`;
}

export function fullText(capacity: ThingCapacity): string {
  const { many, room } = capacityWords[capacity.thing];
  const [held, allowed] = [exactNumber(capacity.held), exactNumber(capacity.allowed)];
  const holds = `This tenant holds ${held} ${many} and may hold ${allowed}.`;
  return `${holds} ${room}, or ask a platform admin to raise its capacity.`;
}
