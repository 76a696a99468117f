import type { Role } from '~/domain/roles';

export const roles: { value: Role; label: string }[] = [
  { value: 'viewer', label: 'Viewer' },
  { value: 'editor', label: 'Editor' },
  { value: 'owner', label: 'Owner' },
];

/** In a sentence. */
export const roleNames: Record<Role, string> = { viewer: 'a viewer', editor: 'an editor', owner: 'an owner' };
