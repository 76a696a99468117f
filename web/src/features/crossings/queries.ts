import { infiniteQueryOptions } from '@tanstack/react-query';
import { api } from '~/api/client';
import { tenantKey } from '~/api/queries';

export type WhichCrossings = { rule: string } | { user: string };

const perPage = 10;

export const crossingsQuery = (tenant: string, which: WhichCrossings) =>
  infiniteQueryOptions({
    queryKey: tenantKey(tenant, 'crossings', which),
    initialPageParam: undefined as string | undefined,
    queryFn: ({ pageParam, signal }) => {
      const filter = 'rule' in which ? { rule_id: which.rule } : { user_id: which.user };
      return api.get('/api/v1/tenants/{tenant}/crossings', {
        tenant,
        ...filter,
        limit: perPage,
        cursor: pageParam,
        signal,
      });
    },
    getNextPageParam: ({ next_cursor }) => next_cursor ?? undefined,
    refetchInterval: 5_000, // the Recorder writes each second, so a page can open before a crossing is there
  });
