import type { QueryClient } from '@tanstack/react-query';
import { changed } from '~/api/changes';
import { api, body, etagOf, ifMatch } from '~/api/client';
import type { Key, NewKey, Permission } from '~/api/types';
import { servicePermissions, tenantPermissions } from '~/domain/permissions';

export interface KeyRoom {
  /** The tenant; null for the platform. */
  tenant: string | null;
  permissions: readonly Permission[];
  create: (key: NewKey) => Promise<{ key: Key; secret: string }>;
  rotate: (key: Key, graceSeconds: number) => Promise<{ key: Key; secret: string }>;
  revoke: (key: Key) => Promise<unknown>;
  /** Notes that a key stays although its creator has left. */
  keep: (key: Key) => Promise<unknown>;
  changed: () => Promise<void>;
}

export function tenantRoom(queries: QueryClient, tenant: string): KeyRoom {
  const path = { tenant };
  return {
    tenant,
    permissions: tenantPermissions,
    create: (key) => body(api.POST('/api/v1/tenants/{tenant}/api-keys', { params: { path }, body: key })),
    rotate: (key, grace_seconds) =>
      body(
        api.POST('/api/v1/tenants/{tenant}/api-keys/{key_id}/rotate', {
          params: { path: { tenant, key_id: key.key_id }, header: ifMatch(etagOf(key)) },
          body: { grace_seconds },
        }),
      ),
    revoke: (key) =>
      body(
        api.POST('/api/v1/tenants/{tenant}/api-keys/{key_id}/revoke', {
          params: { path: { tenant, key_id: key.key_id }, header: ifMatch(etagOf(key)) },
        }),
      ),
    keep: (key) =>
      body(
        api.POST('/api/v1/tenants/{tenant}/api-keys/{key_id}/keep', {
          params: { path: { tenant, key_id: key.key_id }, header: ifMatch(etagOf(key)) },
        }),
      ),
    changed: () => changed(queries, tenant, 'api_key'),
  };
}

export const serviceKeysKey = ['service-keys'] as const;

export function platformRoom(queries: QueryClient): KeyRoom {
  return {
    tenant: null,
    permissions: servicePermissions,
    create: (key) => body(api.POST('/api/v1/service-keys', { body: key })),
    rotate: (key, grace_seconds) =>
      body(
        api.POST('/api/v1/service-keys/{key_id}/rotate', {
          params: { path: { key_id: key.key_id }, header: ifMatch(etagOf(key)) },
          body: { grace_seconds },
        }),
      ),
    revoke: (key) =>
      body(
        api.POST('/api/v1/service-keys/{key_id}/revoke', {
          params: { path: { key_id: key.key_id }, header: ifMatch(etagOf(key)) },
        }),
      ),
    keep: (key) =>
      body(
        api.POST('/api/v1/service-keys/{key_id}/keep', {
          params: { path: { key_id: key.key_id }, header: ifMatch(etagOf(key)) },
        }),
      ),
    changed: () => queries.invalidateQueries({ queryKey: serviceKeysKey }),
  };
}
