import { queryOptions } from '@tanstack/react-query';
import { isoMoments, type Span } from '~/domain/range';
import type { ViolationsSearch } from '~/search';
import { api } from './client';
import { serverNow } from './clock';
import { pagesQuery } from './pages';
import { keepSame, tenantKey } from './queries';
import type { Violation } from './types';

export interface ViolationFilter {
  rule_id?: string;
  scope?: ViolationsSearch['scope'];
  plan?: string;
  user_id?: string;
  ip?: string;
  endpoint?: string;
  mode?: ViolationsSearch['mode'];
}

export function filterOf(search: ViolationsSearch): ViolationFilter {
  const { rule, scope, plan, user, ip, endpoint, mode } = search;
  return { rule_id: rule, scope, plan, user_id: user, ip, endpoint, mode };
}

export interface ViolationPage {
  items: Violation[];
  next_cursor: string | null;
  /** How far back the list is complete; null when it covers the whole range. */
  scanned_until: string | null;
}

const perPage = 100;

export const violationsQuery = (tenant: string, span: Span, filter: ViolationFilter) => {
  const queryKey = tenantKey(tenant, 'violations', 'list', { range: span.text, ...filter });
  const list = pagesQuery(
    queryKey,
    (cursor, signal, times) =>
      api.get('/api/v1/tenants/{tenant}/violations', { tenant, ...filter, ...times, limit: perPage, cursor, signal }),
    () => isoMoments(span, serverNow()),
  );
  return { ...list, placeholderData: keepSame(queryKey) };
};

/** The latest first, at most 2,000; rest: older ones were left out. */
export async function violationsSince(
  tenant: string,
  filter: ViolationFilter,
  since: number,
  signal: AbortSignal,
): Promise<{ items: Violation[]; rest: boolean }> {
  const items: Violation[] = [];
  const times = { from: new Date(since).toISOString(), until: new Date(serverNow() + 300_000).toISOString() };
  let cursor: string | undefined;
  for (let page = 0; page < 4; page++) {
    const query = { ...filter, ...times, limit: 500, cursor };
    const list = await api.get('/api/v1/tenants/{tenant}/violations', { tenant, ...query, signal });
    items.push(...list.items);
    if (list.next_cursor === null) return { items, rest: false };
    cursor = list.next_cursor;
  }
  return { items, rest: true };
}

export const violationQuery = (tenant: string, id: string) =>
  queryOptions({
    queryKey: tenantKey(tenant, 'violations', 'one', id),
    queryFn: ({ signal }) =>
      api.get('/api/v1/tenants/{tenant}/violations/{violation_id}', { tenant, violation_id: id, signal }),
  });
