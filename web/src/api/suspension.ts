import { api, etagOf } from './client';
import type { Tenant } from './types';

export function suspension(tenant: Tenant) {
  const params = { tenant: tenant.slug, etag: etagOf(tenant) };
  return tenant.suspended
    ? {
        verb: 'Resume',
        title: `Resume ${tenant.name}?`,
        effect: 'Its checks are answered again within 2 s, with the same rules and buckets.',
        act: () => api.post('/api/v1/tenants/{tenant}/resume', params),
      }
    : {
        verb: 'Suspend',
        title: `Suspend ${tenant.name}?`,
        effect: 'Within 2 s its checks are refused with 403. No data is lost, and you can resume it.',
        act: () => api.post('/api/v1/tenants/{tenant}/suspend', params),
      };
}
