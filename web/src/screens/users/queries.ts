import { queryOptions } from '@tanstack/react-query';
import { api } from '~/api/client';
import { serverNow } from '~/api/clock';
import { pagesQuery, rowsOf } from '~/api/pages';
import { keepSame, tenantKey } from '~/api/queries';
import type { components } from '~/api/schema';
import type { Assignment } from '~/api/types';
import { isoMoments, type Span } from '~/domain/range';
import type { UsersSearch } from '~/search';

export type Moment = components['schemas']['UserMoment'];

const perPage = 100;

/** Users on the default plan are in no list. */
export const usersQuery = (tenant: string, { prefix, plan }: UsersSearch) => {
  const queryKey = tenantKey(tenant, 'users', 'list', { prefix, plan });
  const list = pagesQuery(queryKey, (cursor, signal) =>
    api.get('/api/v1/tenants/{tenant}/users', { tenant, prefix, plan, limit: perPage, cursor, signal }),
  );
  return { ...list, select: rowsOf<Assignment>, placeholderData: keepSame(queryKey) };
};

export const storyQuery = (tenant: string, user: string, span: Span) => {
  const queryKey = tenantKey(tenant, 'users', 'story', user, span.text);
  const list = pagesQuery(
    queryKey,
    (cursor, signal, times) => {
      const request = { tenant, user_id: user, ...times, limit: 25, cursor, signal };
      return api.get('/api/v1/tenants/{tenant}/users/{user_id}/story', request);
    },
    () => isoMoments(span, serverNow()),
  );
  return { ...list, select: rowsOf<Moment>, placeholderData: keepSame(queryKey) };
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
