import { queryOptions } from '@tanstack/react-query';
import { api, tagged } from './client';
import { keepSame, tenantKey } from './queries';
import type { User } from './types';

/** A check's own plan goes before that of the user. */
export const planOfChecks = ({ sent_plan, plan }: Pick<User, 'sent_plan' | 'plan'>) => sent_plan ?? plan;

/** The ETag is the plan assignment's. */
export const userQuery = (tenant: string, user: string) =>
  queryOptions({
    queryKey: tenantKey(tenant, 'users', 'one', user),
    queryFn: ({ signal }) =>
      tagged(api.get('/api/v1/tenants/{tenant}/users/{user_id}', { tenant, user_id: user, signal })),
    refetchInterval: 5_000,
  });

export const knownUsersQuery = (tenant: string, prefix: string) => {
  const queryKey = tenantKey(tenant, 'users', 'known', prefix);
  return queryOptions({
    queryKey,
    queryFn: async ({ signal }) => {
      const { items } = await api.get('/api/v1/tenants/{tenant}/known-users', { tenant, prefix, limit: 6, signal });
      return items;
    },
    placeholderData: keepSame(queryKey),
  });
};
