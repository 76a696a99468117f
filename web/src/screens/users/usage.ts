import { queryOptions } from '@tanstack/react-query';
import { api } from '~/api/client';
import { tenantKey } from '~/api/queries';

/** No save changes the usage, so none waits for it. */
export const usageQuery = (tenant: string, user: string) =>
  queryOptions({
    queryKey: tenantKey(tenant, 'usage', user),
    queryFn: async ({ signal }) => {
      const { items, as_of } = await api.get('/api/v1/tenants/{tenant}/users/{user_id}/usage', {
        tenant,
        user_id: user,
        signal,
      });
      return { months: items.toReversed(), asOf: as_of };
    },
    refetchInterval: 15_000,
  });

export function monthName(month: string): string {
  return new Intl.DateTimeFormat('en-GB', { month: 'short', year: 'numeric', timeZone: 'UTC' }).format(
    Date.parse(`${month}-01T00:00:00Z`),
  );
}

export function goesOn(month: string, at: string): boolean {
  return at.startsWith(month);
}

/** The present month and the twelve before it, in UTC, as the API names them. */
export function lastMonths(now: number): string[] {
  const at = new Date(now);
  return Array.from({ length: 13 }, (_, back) =>
    new Date(Date.UTC(at.getUTCFullYear(), at.getUTCMonth() - back)).toISOString().slice(0, 7),
  );
}
