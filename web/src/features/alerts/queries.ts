import { type InfiniteData, queryOptions } from '@tanstack/react-query';
import { api } from '~/api/client';
import { all, pagesQuery, rowsOf } from '~/api/pages';
import { tenantKey } from '~/api/queries';
import type { AlertDelivery } from '~/api/types';

const soon = 2_000;
const later = 5_000;

export const alertsQuery = (tenant: string) =>
  queryOptions({
    queryKey: tenantKey(tenant, 'alerts'),
    queryFn: ({ signal }) =>
      all((cursor) => api.get('/api/v1/tenants/{tenant}/alerts', { tenant, limit: 500, cursor, signal })),
    refetchInterval: later,
  });

export const deliveriesQuery = (tenant: string, alert_id: string) => ({
  ...pagesQuery(tenantKey(tenant, 'alerts', alert_id, 'deliveries'), (cursor, signal) =>
    api.get('/api/v1/tenants/{tenant}/alerts/{alert_id}/deliveries', { tenant, alert_id, cursor, signal }),
  ),
  select: rowsOf<AlertDelivery>,
  refetchInterval: ({ state: { data } }: { state: { data?: InfiniteData<{ items: AlertDelivery[] }, unknown> } }) =>
    waits(data?.pages[0]?.items ?? []) ? soon : later,
});

function waits(deliveries: AlertDelivery[]): boolean {
  return deliveries.some(({ state }) => state === 'pending');
}
