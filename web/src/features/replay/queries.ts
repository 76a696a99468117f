import { queryOptions } from '@tanstack/react-query';
import { api, body } from '~/api/client';
import { tenantKey } from '~/api/queries';
import type { components } from '~/api/schema';

export type NewReplay = components['schemas']['NewReplay'];
export type Replay = components['schemas']['Replay'];
export type ReplayResult = components['schemas']['ReplayResult'];
export type Recording = components['schemas']['Recording'];
export type Figure = components['schemas']['Figure'];

export const recordingQuery = (tenant: string) =>
  queryOptions({
    queryKey: tenantKey(tenant, 'recording'),
    queryFn: ({ signal }) =>
      body(api.GET('/api/v1/tenants/{tenant}/recording', { params: { path: { tenant } }, signal })),
  });

/** The latest replays, asked again while one of them is under way. */
export const replaysQuery = (tenant: string) =>
  queryOptions({
    queryKey: tenantKey(tenant, 'replays'),
    queryFn: async ({ signal }) => {
      const query = { limit: 100 };
      return (await body(api.GET('/api/v1/tenants/{tenant}/replays', { params: { path: { tenant }, query }, signal })))
        .items;
    },
    refetchInterval: ({ state: { data } }) => (data?.some(isUnderWay) ? 2_000 : false),
  });

export const replayQuery = (tenant: string, replay_id: string) =>
  queryOptions({
    queryKey: tenantKey(tenant, 'replays', replay_id),
    queryFn: ({ signal }) =>
      body(
        api.GET('/api/v1/tenants/{tenant}/replays/{replay_id}', {
          params: { path: { tenant, replay_id } },
          signal,
        }),
      ),
    refetchInterval: ({ state: { data } }) => (data && isUnderWay(data) ? 1_000 : false),
  });

export function isUnderWay({ state }: Replay): boolean {
  return state === 'waiting' || state === 'running';
}

export function startReplay(tenant: string, replay: NewReplay): Promise<Replay> {
  return body(api.POST('/api/v1/tenants/{tenant}/replays', { params: { path: { tenant } }, body: replay }));
}

export function cancelReplay(tenant: string, replay_id: string): Promise<Replay> {
  return body(
    api.POST('/api/v1/tenants/{tenant}/replays/{replay_id}/cancel', {
      params: { path: { tenant, replay_id } },
    }),
  );
}
