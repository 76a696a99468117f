import { queryOptions } from '@tanstack/react-query';
import { api } from './client';
import { serverNow } from './clock';
import { all } from './pages';
import { tenantKey } from './queries';
import type { ScheduledChange } from './types';

export const scheduledQuery = (tenant: string, rule?: string) =>
  queryOptions({
    queryKey: tenantKey(tenant, 'scheduled', rule ?? 'latest'),
    queryFn: async ({ signal }) =>
      (await api.get('/api/v1/tenants/{tenant}/scheduled-changes', { tenant, rule_id: rule, limit: 10, signal })).items,
    refetchInterval: ({ state: { data } }) => untilNext(data),
  });

export const openScheduledQuery = (tenant: string) =>
  queryOptions({
    queryKey: tenantKey(tenant, 'scheduled', 'open'),
    queryFn: async ({ signal }) =>
      (
        await all((cursor) =>
          api.get('/api/v1/tenants/{tenant}/scheduled-changes', { tenant, open: true, limit: 50, cursor, signal }),
        )
      ).toSorted((a, b) => a.starts_at.localeCompare(b.starts_at)),
    refetchInterval: ({ state: { data } }) => untilNext(data),
  });

/** Milliseconds until the next change starts or ends. */
function untilNext(changes: ScheduledChange[] = []): number {
  const moments = changes.flatMap(({ state, starts_at, ends_at }) => {
    if (state === 'waiting') return [Date.parse(starts_at)];
    return state === 'in_force' && ends_at ? [Date.parse(ends_at)] : [];
  });
  return Math.min(Math.max(Math.min(...moments) - serverNow() + 1000, 2_000), 15_000);
}
