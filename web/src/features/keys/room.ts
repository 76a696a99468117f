import type { QueryClient } from '@tanstack/react-query';
import { changed } from '~/api/changes';
import { api, etagOf } from '~/api/client';
import type { Key, NewKey, Permission } from '~/api/types';
import { servicePermissions, tenantPermissions } from '~/domain/permissions';

export interface KeyRoom {
  /** Null for the platform. */
  tenant: string | null;
  permissions: readonly Permission[];
  create: (key: NewKey) => Promise<{ key: Key; secret: string }>;
  rotate: (key: Key, graceSeconds: number) => Promise<{ key: Key; secret: string }>;
  revoke: (key: Key) => Promise<unknown>;
  keep: (key: Key) => Promise<unknown>;
  changed: () => Promise<void>;
}

export function tenantRoom(queries: QueryClient, tenant: string): KeyRoom {
  const path = { tenant };
  return {
    tenant,
    permissions: tenantPermissions,
    create: (key) => api.post('/api/v1/tenants/{tenant}/api-keys', { ...path, body: key }),
    rotate: (key, grace_seconds) =>
      api.post('/api/v1/tenants/{tenant}/api-keys/{key_id}/rotate', {
        tenant,
        key_id: key.key_id,
        etag: etagOf(key),
        body: { grace_seconds },
      }),
    revoke: (key) =>
      api.post('/api/v1/tenants/{tenant}/api-keys/{key_id}/revoke', { tenant, key_id: key.key_id, etag: etagOf(key) }),
    keep: (key) =>
      api.post('/api/v1/tenants/{tenant}/api-keys/{key_id}/keep', { tenant, key_id: key.key_id, etag: etagOf(key) }),
    changed: () => changed(queries, tenant, 'api_key'),
  };
}

export const serviceKeysKey = ['service-keys'] as const;

export function platformRoom(queries: QueryClient): KeyRoom {
  return {
    tenant: null,
    permissions: servicePermissions,
    create: (key) => api.post('/api/v1/service-keys', { body: key }),
    rotate: (key, grace_seconds) =>
      api.post('/api/v1/service-keys/{key_id}/rotate', {
        key_id: key.key_id,
        etag: etagOf(key),
        body: { grace_seconds },
      }),
    revoke: (key) => api.post('/api/v1/service-keys/{key_id}/revoke', { key_id: key.key_id, etag: etagOf(key) }),
    keep: (key) => api.post('/api/v1/service-keys/{key_id}/keep', { key_id: key.key_id, etag: etagOf(key) }),
    changed: () => queries.invalidateQueries({ queryKey: serviceKeysKey }),
  };
}
