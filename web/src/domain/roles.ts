export type Role = 'viewer' | 'editor' | 'owner';

export interface Permissions {
  role: Role;
  edit: boolean;
  own: boolean;
}

export function permissions(role: Role): Permissions {
  return { role, edit: role !== 'viewer', own: role === 'owner' };
}

export const leastRole = {
  edit: 'the editor role',
  own: 'the owner role',
  platform: 'a platform admin',
} as const;

export const roles: { value: Role; label: string }[] = [
  { value: 'viewer', label: 'Viewer' },
  { value: 'editor', label: 'Editor' },
  { value: 'owner', label: 'Owner' },
];

export const roleNames: Record<Role, string> = { viewer: 'a viewer', editor: 'an editor', owner: 'an owner' };
