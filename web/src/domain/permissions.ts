import type { Permission } from '~/api/types';

export const permissionWords: Record<Permission, { label: string; description: string }> = {
  check: { label: 'Check', description: 'Send checks. Services need this.' },
  explain: { label: 'Explain', description: 'Explain decisions without taking tokens.' },
  refund: { label: 'Refund', description: 'Give back more than the same key reserved.' },
  report: { label: 'Report', description: 'Report latency and errors.' },
  lease: { label: 'Lease', description: 'Hold tokens, to decide checks without asking.' },
  manage: { label: 'Manage', description: 'Read, rules and users, as an editor may.' },
  read: { label: 'Read', description: 'Read everything but secrets.' },
  rules: { label: 'Rules', description: 'Change plans, rules, overrides and gateways; import files.' },
  users: { label: 'Users', description: 'Change the plans and buckets of users.' },
  settings: { label: 'Settings', description: 'Change the tenant’s settings and its enforcement.' },
  members: { label: 'Members', description: 'Invite and remove members.' },
  keys: { label: 'Keys', description: 'Create and revoke keys that may do no more than this one.' },
  alerts: { label: 'Alerts', description: 'Change alerts.' },
  tenants: { label: 'Tenants', description: 'Create, suspend and remove tenants.' },
  accounts: { label: 'Accounts', description: 'Disable accounts, and read the platform’s audit log.' },
};

const areas = ['manage', 'read', 'rules', 'users', 'settings', 'members', 'keys', 'alerts'] as const;

export const tenantPermissions: readonly Permission[] = ['check', 'explain', 'refund', 'report', 'lease', ...areas];
export const servicePermissions: readonly Permission[] = ['tenants', 'accounts', ...areas];
