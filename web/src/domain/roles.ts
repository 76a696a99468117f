/** What a member may do (internal/auth): each role may do what the one before may. */
export type Role = 'viewer' | 'editor' | 'owner';

export interface Permissions {
  role: Role;
  /** Change plans, rules, overrides, users and their buckets. */
  edit: boolean;
  /** Change settings, API keys, members and alerts. */
  own: boolean;
}

export function permissions(role: Role): Permissions {
  return { role, edit: role !== 'viewer', own: role === 'owner' };
}

/** For screens: "An owner can do this." */
export const leastRole = { edit: 'an editor', own: 'an owner', platform: 'a platform admin' } as const;
