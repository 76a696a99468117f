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

function again(span: Span, every: number) {
  return span.moves ? every : (false as const);
}

/** Leaves out steps that have not begun. */
function begun<P extends { at: string }, S extends { points: P[] }>(series: S): S {
  const now = serverNow();
  return { ...series, points: series.points.filter(({ at }) => Date.parse(at) <= now) };
}

export const seriesQuery = (tenant: string, span: Span, of: { rule_id?: string; meter?: string } = {}) => {
  const queryKey = tenantKey(tenant, 'stats', 'series', of, span.text);
  return queryOptions({
    queryKey,
    queryFn: async ({ signal }) =>
      begun(
        await api.get('/api/v1/tenants/{tenant}/stats/series', {
          tenant,
          ...isoMoments(span, serverNow()),
          ...of,
          signal,
        }),
      ),
    refetchInterval: again(span, often),
    placeholderData: keepSame(queryKey),
  });
};

export const violationSeriesQuery = (tenant: string, span: Span, filter: ViolationFilter) => {
  const queryKey = tenantKey(tenant, 'stats', 'violations', filter, span.text);
  return queryOptions({
    queryKey,
    queryFn: async ({ signal }) =>
      begun(
        await api.get('/api/v1/tenants/{tenant}/stats/violations', {
          tenant,
          ...isoMoments(span, serverNow()),
          ...filter,
          signal,
        }),
      ),
    refetchInterval: again(span, seldom),
    placeholderData: keepSame(queryKey),
  });
};

export const summaryQuery = (tenant: string, span: Span, meter?: string) => {
  const queryKey = tenantKey(tenant, 'stats', 'summary', meter ?? null, span.text);
  return queryOptions({
    queryKey,
    queryFn: ({ signal }) =>
      api.get('/api/v1/tenants/{tenant}/stats/summary', { tenant, ...isoMoments(span, serverNow()), meter, signal }),
    refetchInterval: again(span, often),
    placeholderData: keepSame(queryKey),
  });
};

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
) => {
  const queryKey = tenantKey(tenant, 'stats', 'top', by, limit, filter, span.text);
  return queryOptions({
    queryKey,
    queryFn: ({ signal }) =>
      api.get('/api/v1/tenants/{tenant}/stats/top', {
        tenant,
        ...isoMoments(span, serverNow()),
        by,
        limit,
        ...filter,
        signal,
      }),
    refetchInterval: again(span, seldom),
    placeholderData: keepSame(queryKey),
  });
};

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
    refetchInterval: seldom,
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
