import type { Key } from '~/api/types';

export function keyState(key: Key, now: number): 'active' | 'expiring' | 'expired' | 'revoked' {
  if (key.revoked_at) return 'revoked';
  if (!key.expires_at) return 'active';
  return Date.parse(key.expires_at) <= now ? 'expired' : 'expiring';
}

export const soonDays = 14;

export function expiresSoon(key: Key, now: number): boolean {
  return keyState(key, now) === 'expiring' && Date.parse(key.expires_at ?? '') - now < soonDays * 86_400_000;
}

/** Keys of one name, as after a rotation, also show their id: "gateway (k3Jx9mQ2)". */
export function keyLabel({ key_id, name }: Key, keys: Key[]): string {
  if (!name) return key_id;
  const isShared = keys.some((key) => key.name === name && key.key_id !== key_id);
  return isShared ? `${name} (${key_id})` : name;
}
