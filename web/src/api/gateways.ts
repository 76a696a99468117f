import { queryOptions } from '@tanstack/react-query';
import { api, type Tagged, tagged } from './client';
import { tenantKey } from './queries';
import type { AuthorizeMapping, DescriptorMapping } from './types';

export interface Stored<M> {
  mapping: M;
  is_default: boolean;
  version: number;
}

export interface Kind<M extends object> {
  name: 'authorize' | 'descriptors';
  example: M;
  get: (tenant: string, signal?: AbortSignal) => Promise<Tagged<Stored<M>>>;
  put: (tenant: string, etag: string, mapping: M) => Promise<Tagged<Stored<M>>>;
  remove: (tenant: string, etag: string) => Promise<unknown>;
}

export const authorizeKind: Kind<AuthorizeMapping> = {
  name: 'authorize',
  example: { user: { header: 'X-User', plain: true }, endpoint: { templates: ['/orders/{id}'] } },
  get: (tenant, signal) => tagged(api.get('/api/v1/tenants/{tenant}/gateways/authorize', { tenant, signal })),
  put: (tenant, etag, body) => tagged(api.put('/api/v1/tenants/{tenant}/gateways/authorize', { tenant, etag, body })),
  remove: (tenant, etag) => api.delete('/api/v1/tenants/{tenant}/gateways/authorize', { tenant, etag }),
};

export const descriptorKind: Kind<DescriptorMapping> = {
  name: 'descriptors',
  example: { keys: { customer: 'user_id' }, domains: { edge: { templates: [['customer']] } } },
  get: (tenant, signal) => tagged(api.get('/api/v1/tenants/{tenant}/gateways/descriptors', { tenant, signal })),
  put: (tenant, etag, body) => tagged(api.put('/api/v1/tenants/{tenant}/gateways/descriptors', { tenant, etag, body })),
  remove: (tenant, etag) => api.delete('/api/v1/tenants/{tenant}/gateways/descriptors', { tenant, etag }),
};

export const mappingQuery = <M extends object>(kind: Kind<M>, tenant: string) =>
  queryOptions({
    queryKey: tenantKey(tenant, 'gateways', kind.name),
    queryFn: ({ signal }) => kind.get(tenant, signal),
  });
