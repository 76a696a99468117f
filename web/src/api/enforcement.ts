import { type QueryClient, queryOptions } from '@tanstack/react-query';
import { changed } from './changes';
import { api, tagged } from './client';
import { tenantKey } from './queries';
import type { AuditEntry, Enforcement, Tenant } from './types';

const searched = 100;

/** Null if it is not among the latest changes. */
export const enforcementChangeQuery = (tenant: Tenant) =>
  queryOptions({
    queryKey: tenantKey(tenant.slug, 'enforcement change', tenant.version),
    queryFn: async ({ signal }): Promise<AuditEntry | null> => {
      const { items } = await api.get('/api/v1/tenants/{tenant}/audit', {
        tenant: tenant.slug,
        object_kind: 'tenant',
        object_id: tenant.slug,
        limit: searched,
        signal,
      });
      const turned = ({ before, after }: AuditEntry) => before?.enforcement !== after?.enforcement;
      return items.find(turned) ?? null;
    },
    staleTime: Number.POSITIVE_INFINITY, // a version has one history
  });

/** Reads the ETag first, so that another edit of the settings does not block the change. */
export async function setEnforcement(queries: QueryClient, slug: string, to: Enforcement): Promise<void> {
  const path = { tenant: slug };
  const { etag } = await tagged(api.get('/api/v1/tenants/{tenant}', path));
  await api.patch('/api/v1/tenants/{tenant}', { ...path, etag, body: { enforcement: to } });
  await changed(queries, slug, 'tenant');
}
