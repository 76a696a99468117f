import { queryOptions } from '@tanstack/react-query';
import { api, tagged } from './client';
import { tenantKey } from './queries';

/** One user with plan, overrides and latest violations. The ETag is that of the plan assignment. */
export const userQuery = (tenant: string, user: string) =>
  queryOptions({
    queryKey: tenantKey(tenant, 'users', 'one', user),
    queryFn: ({ signal }) =>
      tagged(
        api.GET('/api/v1/tenants/{tenant}/users/{user_id}', {
          params: { path: { tenant, user_id: user } },
          signal,
        }),
      ),
    refetchInterval: 5_000,
  });
