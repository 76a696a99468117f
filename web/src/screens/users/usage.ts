import { queryOptions } from '@tanstack/react-query';
import { api, body } from '~/api/client';
import { tenantKey } from '~/api/queries';

/** What one month counted of a user, in UTC. */
export interface UsageOfMonth {
  month: string;
  allowed: number;
  denied: number;
  /** What the allowed checks cost, in tokens. */
  cost: number;
}

/** The last thirteen months of a user, the latest first. */
export const usageQuery = (tenant: string, user: string) =>
  queryOptions({
    queryKey: tenantKey(tenant, 'users', 'usage', user),
    queryFn: async ({ signal }) =>
      monthsIn(
        (await body(
          api.GET('/api/v1/tenants/{tenant}/usage/export', {
            params: { path: { tenant }, query: { by: 'user', user_id: user } },
            parseAs: 'text',
            signal,
          }),
        )) as string,
      ),
    refetchInterval: 60_000,
  });

/** The lines of users in a usage file. A user's id may contain commas; what stands around it has none. */
export function monthsIn(csv: string): UsageOfMonth[] {
  const lines = [...csv.matchAll(/^(\d{4}-\d\d),user,.*,(\d+),(\d+),([\d.]+)$/gm)];
  return lines
    .map(([, month = '', allowed, denied, cost]) => ({
      month,
      allowed: Number(allowed),
      denied: Number(denied),
      cost: Number(cost),
    }))
    .toReversed();
}

/** "Nov 2026" */
export function monthName(month: string): string {
  return new Intl.DateTimeFormat('en-GB', { month: 'short', year: 'numeric', timeZone: 'UTC' }).format(
    Date.parse(`${month}-01T00:00:00Z`),
  );
}

/** The present month and the twelve before it, in UTC, as the API names them. */
export function lastMonths(now: number): string[] {
  const at = new Date(now);
  return Array.from({ length: 13 }, (_, back) =>
    new Date(Date.UTC(at.getUTCFullYear(), at.getUTCMonth() - back)).toISOString().slice(0, 7),
  );
}
