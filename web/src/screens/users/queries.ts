import { infiniteQueryOptions, queryOptions } from '@tanstack/react-query';
import { api } from '~/api/client';
import { serverNow } from '~/api/clock';
import { keepSame, tenantKey } from '~/api/queries';
import { isoMoments, type Span } from '~/domain/range';
import type { UsersSearch } from '~/search';

const perPage = 100;

/** Users with an assigned plan, by id. Users on the default plan are in no list. */
export const usersQuery = (tenant: string, { prefix, plan }: UsersSearch) => {
  const queryKey = tenantKey(tenant, 'users', 'list', { prefix, plan });
  return infiniteQueryOptions({
    queryKey,
    initialPageParam: undefined as string | undefined,
    queryFn: ({ pageParam, signal }) =>
      api.get('/api/v1/tenants/{tenant}/users', { tenant, prefix, plan, limit: perPage, cursor: pageParam, signal }),
    getNextPageParam: ({ next_cursor }) => next_cursor ?? undefined,
    placeholderData: keepSame(queryKey),
  });
};

export const storyQuery = (tenant: string, user: string, span: Span) => {
  const queryKey = tenantKey(tenant, 'users', 'story', user, span.text);
  return infiniteQueryOptions({
    queryKey,
    initialPageParam: undefined as { cursor: string; from: string; until: string } | undefined,
    queryFn: async ({ pageParam, signal }) => {
      const { cursor, ...moments } = pageParam ?? { cursor: undefined, ...isoMoments(span, serverNow()) };
      const query = { ...moments, cursor, limit: 25 };
      const page = await api.get('/api/v1/tenants/{tenant}/users/{user_id}/story', {
        tenant,
        user_id: user,
        ...query,
        signal,
      });
      return { ...page, moments };
    },
    // The range is part of the cursor, so all pages have that of the first.
    getNextPageParam: ({ next_cursor, moments }) =>
      next_cursor === null ? undefined : { cursor: next_cursor, ...moments },
    placeholderData: keepSame(queryKey),
  });
};

export const bucketsQuery = (tenant: string, user: string, plan: string | undefined) =>
  queryOptions({
    queryKey: tenantKey(tenant, 'users', 'buckets', user, plan),
    queryFn: async ({ signal }) => {
      const { items, has_more } = await api.get('/api/v1/tenants/{tenant}/users/{user_id}/buckets', {
        tenant,
        user_id: user,
        plan,
        signal,
      });
      return { items, hasMore: has_more, readAt: Date.now() };
    },
    refetchInterval: 2_000,
    staleTime: 0,
  });
