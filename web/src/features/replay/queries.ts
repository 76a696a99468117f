import { queryOptions } from '@tanstack/react-query';
import { api } from '~/api/client';
import { tenantKey } from '~/api/queries';
import type { NewReplay, Replay } from '~/api/types';

export type { Figure, NewReplay, Recording, Replay, ReplayResult } from '~/api/types';

export const recordingQuery = (tenant: string) =>
  queryOptions({
    queryKey: tenantKey(tenant, 'recording'),
    queryFn: ({ signal }) => api.get('/api/v1/tenants/{tenant}/recording', { tenant, signal }),
  });

export const replaysQuery = (tenant: string) =>
  queryOptions({
    queryKey: tenantKey(tenant, 'replays'),
    queryFn: async ({ signal }) => {
      const query = { limit: 100 };
      return (await api.get('/api/v1/tenants/{tenant}/replays', { tenant, ...query, signal })).items;
    },
    refetchInterval: ({ state: { data } }) => (data?.some(isUnderWay) ? 2_000 : false),
  });

export const replayQuery = (tenant: string, replay_id: string) =>
  queryOptions({
    queryKey: tenantKey(tenant, 'replays', replay_id),
    queryFn: ({ signal }) => api.get('/api/v1/tenants/{tenant}/replays/{replay_id}', { tenant, replay_id, signal }),
    refetchInterval: ({ state: { data } }) => (data && isUnderWay(data) ? 1_000 : false),
  });

export function isUnderWay({ state }: Replay): boolean {
  return state === 'waiting' || state === 'running';
}

export function startReplay(tenant: string, replay: NewReplay): Promise<Replay> {
  return api.post('/api/v1/tenants/{tenant}/replays', { tenant, body: replay });
}

export function cancelReplay(tenant: string, replay_id: string): Promise<Replay> {
  return api.post('/api/v1/tenants/{tenant}/replays/{replay_id}/cancel', { tenant, replay_id });
}
