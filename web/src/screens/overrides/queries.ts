import { infiniteQueryOptions, keepPreviousData, queryOptions } from '@tanstack/react-query';
import { api, body } from '~/api/client';
import { tenantKey } from '~/api/queries';
import type { paths } from '~/api/schema';
import type { OverridesSearch } from '~/search';

const perPage = 100;
const soon = 7 * 86_400_000;

type Filter = NonNullable<paths['/api/v1/tenants/{tenant}/overrides']['get']['parameters']['query']>;

/** The filter of those that have not ended and will within seven days. */
function endingSoon(): Filter {
  return { sort: 'end', expired: false, ends_before: new Date(Date.now() + soon).toISOString() };
}

/** The server's filter for what the address says. */
function filterOf({ ends, rule, prefix }: OverridesSearch): Filter {
  const which: Filter =
    ends === 'soon' ? endingSoon() : ends === 'expired' ? { sort: 'end', expired: true } : {};
  return { ...which, rule_id: rule, prefix };
}

/** The overrides of all rules. */
export const tenantOverridesQuery = (tenant: string, search: OverridesSearch & { user?: string }) =>
  infiniteQueryOptions({
    queryKey: tenantKey(tenant, 'overrides', search),
    initialPageParam: { filter: undefined as Filter | undefined, cursor: undefined as string | undefined },
    queryFn: async ({ pageParam, signal }) => {
      // A cursor goes with the filter that it came with, the time in it too.
      const filter = pageParam.filter ?? { ...filterOf(search), user_id: search.user };
      const page = await body(
        api.GET('/api/v1/tenants/{tenant}/overrides', {
          params: { path: { tenant }, query: { ...filter, limit: perPage, cursor: pageParam.cursor } },
          signal,
        }),
      );
      return { ...page, filter };
    },
    getNextPageParam: ({ next_cursor, filter }) =>
      next_cursor ? { filter, cursor: next_cursor } : undefined,
    placeholderData: keepPreviousData,
  });

/** How many overrides end within seven days; at most those of one page. */
export const endingSoonQuery = (tenant: string) =>
  queryOptions({
    queryKey: tenantKey(tenant, 'overrides', 'ending soon'),
    queryFn: async ({ signal }) => {
      const { items, next_cursor } = await body(
        api.GET('/api/v1/tenants/{tenant}/overrides', {
          params: { path: { tenant }, query: { ...endingSoon(), limit: perPage } },
          signal,
        }),
      );
      return { count: items.length, hasMore: next_cursor !== null, first: items[0] };
    },
    refetchInterval: 60_000,
  });
