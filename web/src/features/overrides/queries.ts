import { queryOptions } from '@tanstack/react-query';
import { api, etagOf } from '~/api/client';
import { serverNow } from '~/api/clock';
import { pagesQuery, rowsOf } from '~/api/pages';
import { isStatus } from '~/api/problem';
import { keepSame, tenantKey } from '~/api/queries';
import type { paths } from '~/api/schema';
import type { Override, OverrideLimit } from '~/api/types';
import type { OverridesSearch } from '~/search';

const perPage = 100;
const soon = 7 * 86_400_000;

type Filter = NonNullable<paths['/api/v1/tenants/{tenant}/overrides']['get']['parameters']['query']>;

export interface Which extends OverridesSearch {
  user?: string;
}

function endingSoon(): Filter {
  return { sort: 'end', expired: false, ends_before: new Date(serverNow() + soon).toISOString() };
}

function filterOf({ ends, rule, prefix, user }: Which): Filter {
  const byEnd: Filter = ends === 'soon' ? endingSoon() : ends === 'expired' ? { sort: 'end', expired: true } : {};
  return { ...byEnd, rule_id: rule, prefix, user_id: user };
}

export const overridesQuery = (tenant: string, which: Which) => {
  const { user, ...filters } = which;
  const queryKey = tenantKey(tenant, 'overrides', user ?? null, filters);
  const list = pagesQuery(
    queryKey,
    (cursor, signal, filter) =>
      api.get('/api/v1/tenants/{tenant}/overrides', { tenant, ...filter, limit: perPage, cursor, signal }),
    () => filterOf(which),
  );
  return {
    ...list,
    select: rowsOf<Override>,
    placeholderData: keepSame(queryKey),
    refetchInterval: user === undefined ? (false as const) : 5_000,
  };
};

export const endingSoonQuery = (tenant: string) =>
  queryOptions({
    queryKey: tenantKey(tenant, 'overrides', 'ending soon'),
    queryFn: async ({ signal }) => {
      const { items, next_cursor } = await api.get('/api/v1/tenants/{tenant}/overrides', {
        tenant,
        ...endingSoon(),
        limit: perPage,
        signal,
      });
      return { count: items.length, hasMore: next_cursor !== null, first: items[0] };
    },
    refetchInterval: 60_000,
  });

type Subject = Pick<Override, 'rule_id' | 'user_id'>;

const pathOf = (tenant: string, { rule_id, user_id }: Subject) => ({ tenant, rule_id, user_id });

export async function readOverride(tenant: string, of: Subject): Promise<Override | undefined> {
  try {
    return await api.get('/api/v1/tenants/{tenant}/rules/{rule_id}/overrides/{user_id}', pathOf(tenant, of));
  } catch (error) {
    if (isStatus(error, 404)) return undefined;
    throw error;
  }
}

export function saveOverride(tenant: string, of: Subject, over: Override | undefined, limit: OverrideLimit) {
  return api.put('/api/v1/tenants/{tenant}/rules/{rule_id}/overrides/{user_id}', {
    ...pathOf(tenant, of),
    ...(over ? { etag: etagOf(over) } : { headers: { 'If-None-Match': '*' } }),
    body: limit,
  });
}

export function removeOverride(tenant: string, override: Override) {
  return api.delete('/api/v1/tenants/{tenant}/rules/{rule_id}/overrides/{user_id}', {
    ...pathOf(tenant, override),
    etag: etagOf(override),
  });
}
