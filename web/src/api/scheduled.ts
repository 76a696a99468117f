import { queryOptions } from '@tanstack/react-query';
import { api, body } from './client';
import { all } from './pages';
import { tenantKey } from './queries';

/** The latest scheduled changes of a rule, or of all rules. */
export const scheduledQuery = (tenant: string, rule?: number) =>
  queryOptions({
    queryKey: tenantKey(tenant, 'scheduled', rule ?? 'latest'),
    queryFn: async ({ signal }) =>
      (
        await body(
          api.GET('/api/v1/tenants/{tenant}/scheduled-changes', {
            params: { path: { tenant }, query: { rule_id: rule, limit: 10 } },
            signal,
          }),
        )
      ).items,
    refetchInterval: 15_000,
  });

/** The changes that wait or are in force until an end, the next one first. */
export const openScheduledQuery = (tenant: string) =>
  queryOptions({
    queryKey: tenantKey(tenant, 'scheduled', 'open'),
    queryFn: async ({ signal }) =>
      (
        await all((cursor) =>
          body(
            api.GET('/api/v1/tenants/{tenant}/scheduled-changes', {
              params: { path: { tenant }, query: { open: true, limit: 50, cursor } },
              signal,
            }),
          ),
        )
      ).toSorted((a, b) => a.starts_at.localeCompare(b.starts_at)),
    refetchInterval: 15_000,
  });
