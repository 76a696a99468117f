import { queryOptions } from '@tanstack/react-query';
import { perMinuteText } from '~/domain/format';
import { isoMoments, type Span } from '~/domain/range';
import { api } from './client';
import { serverNow } from './clock';
import { keepSame, tenantKey } from './queries';
import type { Busiest, Present, TopBy } from './types';
import type { ViolationFilter } from './violations';

/** A range that ends now is refetched at an interval; a fixed range is read once. */
const often = 5_000;
const seldom = 15_000;

/** A query of figures over a span of time; `begins` names them in its key. */
function spanQuery<T>(
  tenant: string,
  span: Span,
  every: number,
  begins: unknown[],
  read: (asked: { tenant: string; from: string; until: string; signal: AbortSignal }) => Promise<T>,
) {
  const queryKey = tenantKey(tenant, 'stats', ...begins, span.text);
  return queryOptions({
    queryKey,
    queryFn: ({ signal }) => read({ tenant, ...isoMoments(span, serverNow()), signal }),
    refetchInterval: span.moves ? every : (false as const),
    placeholderData: keepSame(queryKey),
  });
}

/** Leaves out steps that have not begun. */
function begun<P extends { at: string }, S extends { points: P[] }>(series: S): S {
  const now = serverNow();
  return { ...series, points: series.points.filter(({ at }) => Date.parse(at) <= now) };
}

export const seriesQuery = (tenant: string, span: Span, of: { rule_id?: string; meter?: string } = {}) =>
  spanQuery(tenant, span, often, ['series', of], async (asked) =>
    begun(await api.get('/api/v1/tenants/{tenant}/stats/series', { ...asked, ...of })),
  );

/** Refetched less often because the server reads violation records. */
export const violationSeriesQuery = (tenant: string, span: Span, filter: ViolationFilter) =>
  spanQuery(tenant, span, seldom, ['violations', filter], async (asked) =>
    begun(await api.get('/api/v1/tenants/{tenant}/stats/violations', { ...asked, ...filter })),
  );

export const summaryQuery = (tenant: string, span: Span, meter?: string) =>
  spanQuery(tenant, span, often, ['summary', meter ?? null], (asked) =>
    api.get('/api/v1/tenants/{tenant}/stats/summary', { ...asked, meter }),
  );

interface TopFilter {
  mode?: 'enforce' | 'shadow';
  rule_id?: string;
}

export const topQuery = (
  tenant: string,
  span: Span,
  by: TopBy,
  limit: number,
  filter: TopFilter = { mode: 'enforce' },
) =>
  spanQuery(tenant, span, seldom, ['top', by, limit, filter], (asked) =>
    api.get('/api/v1/tenants/{tenant}/stats/top', { ...asked, by, limit, ...filter }),
  );

export const presentQuery = (tenant: string, by: TopBy, meter?: string) =>
  queryOptions({
    queryKey: tenantKey(tenant, 'stats', 'present', by, meter ?? null),
    queryFn: ({ signal }) =>
      api.get('/api/v1/tenants/{tenant}/stats/present', { tenant, by, meter, limit: 100, signal }),
    refetchInterval: often,
  });

export const busiestQuery = (tenant: string, by: Busiest['by']) =>
  queryOptions({
    queryKey: tenantKey(tenant, 'stats', 'busiest', by),
    queryFn: ({ signal }) => api.get('/api/v1/tenants/{tenant}/stats/busiest', { tenant, by, signal }),
    refetchInterval: often,
  });

export function presentRate({ items, unattributed_per_minute }: Present, value: string): string | undefined {
  const rate = items.find((item) => item.value === value)?.per_minute;
  if (!rate) return undefined;
  return `${unattributed_per_minute > 0 ? 'at least ' : ''}${perMinuteText(rate)}`;
}

export const tenantStatusQuery = (tenant: string) =>
  queryOptions({
    queryKey: tenantKey(tenant, 'status'),
    queryFn: ({ signal }) => api.get('/api/v1/tenants/{tenant}/status', { tenant, signal }),
    refetchInterval: often,
  });

export const statusQuery = queryOptions({
  queryKey: ['status'],
  queryFn: ({ signal }) => api.get('/api/v1/status', { signal }),
  refetchInterval: often,
});
