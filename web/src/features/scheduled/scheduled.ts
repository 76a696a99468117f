import { queryOptions } from '@tanstack/react-query';
import { api, body } from '~/api/client';
import { tenantKey } from '~/api/queries';
import type { components } from '~/api/schema';
import { plainTime } from '~/domain/format';

export type ScheduledChange = components['schemas']['ScheduledChange'];

/** The latest scheduled changes of a rule. */
export const scheduledQuery = (tenant: string, rule: number) =>
  queryOptions({
    queryKey: tenantKey(tenant, 'scheduled', rule),
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

/** The changes of all rules that wait or are in force until an end, by rule: the earliest of each. */
export const openScheduledQuery = (tenant: string) =>
  queryOptions({
    queryKey: tenantKey(tenant, 'scheduled', 'open'),
    queryFn: async ({ signal }) => {
      const { items } = await body(
        api.GET('/api/v1/tenants/{tenant}/scheduled-changes', {
          params: { path: { tenant }, query: { open: true, limit: 500 } }, // a tenant has at most 100
          signal,
        }),
      );
      const latestFirst = items.toSorted((a, b) => b.starts_at.localeCompare(a.starts_at));
      return new Map(latestFirst.map((one) => [one.rule_id, one]));
    },
  });

export const isOpen = ({ state }: ScheduledChange) => state === 'waiting' || state === 'in_force';

/** "Nov 23, 09:00 to Nov 27, 17:00", "from Nov 23, 09:00 on" */
export function whenWords({ starts_at, ends_at }: Pick<ScheduledChange, 'starts_at' | 'ends_at'>): string {
  const start = plainTime(Date.parse(starts_at));
  return ends_at ? `${start} to ${plainTime(Date.parse(ends_at))}` : `from ${start} on`;
}
