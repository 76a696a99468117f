import { queryOptions } from '@tanstack/react-query';
import { isoMoments, type Span } from '~/domain/range';
import { api, body } from './client';
import { keepSame, tenantKey } from './queries';
import type { TopBy } from './types';
import type { ViolationFilter } from './violations';

/**
 * How checks were decided, and who answers them. A range that moves with the clock is read again and again, so
 * that a screen left open stays true; one between two moments is read once.
 */
const often = 5_000;
const seldom = 15_000;

function again(span: Span, every: number) {
  return span.moves ? every : (false as const);
}

/** Verdicts over time: of all checks, or of one rule. */
export const seriesQuery = (tenant: string, span: Span, rule?: number) => {
  const queryKey = tenantKey(tenant, 'stats', 'series', rule ?? null, span.text);
  return queryOptions({
    queryKey,
    queryFn: ({ signal }) =>
      body(
        api.GET('/api/v1/tenants/{tenant}/stats/series', {
          params: { path: { tenant }, query: { ...isoMoments(span), rule_id: rule } },
          signal,
        }),
      ),
    refetchInterval: again(span, often),
    placeholderData: keepSame(queryKey),
  });
};

/** Checks that the violations which a filter wants stand for, over time. It reads records, so it is read seldom. */
export const violationSeriesQuery = (tenant: string, span: Span, filter: ViolationFilter) => {
  const queryKey = tenantKey(tenant, 'stats', 'violations', filter, span.text);
  return queryOptions({
    queryKey,
    queryFn: ({ signal }) =>
      body(
        api.GET('/api/v1/tenants/{tenant}/stats/violations', {
          params: { path: { tenant }, query: { ...isoMoments(span), ...filter } },
          signal,
        }),
      ),
    refetchInterval: again(span, seldom),
    placeholderData: keepSame(queryKey),
  });
};

/** Sums of some time, and what shadow rules would have denied in it. */
export const summaryQuery = (tenant: string, span: Span) => {
  const queryKey = tenantKey(tenant, 'stats', 'summary', span.text);
  return queryOptions({
    queryKey,
    queryFn: ({ signal }) =>
      body(
        api.GET('/api/v1/tenants/{tenant}/stats/summary', {
          params: { path: { tenant }, query: isoMoments(span) },
          signal,
        }),
      ),
    refetchInterval: again(span, often),
    placeholderData: keepSame(queryKey),
  });
};

/** Who or what was denied most. Shadow rules are not asked: nobody was limited by them. */
export const topQuery = (tenant: string, span: Span, by: TopBy, limit: number) => {
  const queryKey = tenantKey(tenant, 'stats', 'top', by, limit, span.text);
  return queryOptions({
    queryKey,
    queryFn: ({ signal }) =>
      body(
        api.GET('/api/v1/tenants/{tenant}/stats/top', {
          params: { path: { tenant }, query: { ...isoMoments(span), by, limit, mode: 'enforce' } },
          signal,
        }),
      ),
    refetchInterval: again(span, seldom),
    placeholderData: keepSame(queryKey),
  });
};

/** How a tenant's checks go at the moment. */
export const tenantStatusQuery = (tenant: string) =>
  queryOptions({
    queryKey: tenantKey(tenant, 'status'),
    queryFn: ({ signal }) =>
      body(api.GET('/api/v1/tenants/{tenant}/status', { params: { path: { tenant } }, signal })),
    refetchInterval: often,
  });

/** How the database, Redis and every process are. It is the installation's, which platform admins alone see. */
export const statusQuery = queryOptions({
  queryKey: ['status'],
  queryFn: ({ signal }) => body(api.GET('/api/v1/status', { signal })),
  refetchInterval: often,
});
