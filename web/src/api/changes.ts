import type { QueryClient } from '@tanstack/react-query';
import { type Resource, sessionKey, tenantKey } from './queries';
import type { AuditObjectKind } from './types';

/** The beginning of a query key, after the tenant. */
type Part = Resource | readonly [Resource, ...string[]];

/** The queries that a write refetches, but those with a short interval, such as stats. */
const changes: Record<AuditObjectKind, readonly Part[]> = {
  // A removed rule takes its overrides along, turns its alerts off, and is one less on its plan.
  rule: [
    'rules',
    'matrix',
    'plans',
    'overrides',
    'users',
    'alerts',
    ['violations', 'one'],
    'adapting',
    'capacity',
    'scheduled',
    'audit',
  ],
  override: ['overrides', 'users', 'capacity', 'audit'],
  plan: ['plans', 'matrix', 'capacity', 'audit'],
  user: ['users', 'plans', 'capacity', 'audit'],
  bucket: [['users', 'buckets'], 'audit'],
  api_key: ['keys', 'capacity', 'audit'],
  member: ['members', 'capacity', 'audit'],
  invitation: ['invitations', 'audit'],
  alert: ['alerts', 'capacity', 'audit'],
  gateway: ['gateways', 'audit'],
  replay: ['replays', 'audit'],
  scheduled_change: ['scheduled', 'audit'],
  audit_webhook: ['audit webhook', 'audit'],
  capacity: ['capacity', 'audit'],
  tenant: ['itself', 'plans', 'users', 'adapting', 'audit'],
};

export async function changed(queries: QueryClient, tenant: string, ...kinds: AuditObjectKind[]): Promise<void> {
  const parts = new Set(kinds.flatMap((kind) => changes[kind]));
  const keys = [...parts].map((part) => {
    const [resource, ...rest] = typeof part === 'string' ? ([part] as const) : part;
    return tenantKey(tenant, resource, ...rest);
  });
  const everywhere = kinds.includes('tenant') ? [sessionKey, ['tenants']] : [];
  await Promise.all([...keys, ...everywhere].map((queryKey) => queries.invalidateQueries({ queryKey })));
}
