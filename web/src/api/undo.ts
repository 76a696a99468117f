import { api, body, requestOf } from './client';
import { tenantKey } from './queries';
import { makeStore, useStore } from './store';

const asked = makeStore<{ tenant: string; request: string } | null>(null);

export type ChangeOf = { change_id: number } | { request_id: string };

export const changeQuery = (tenant: string, of: ChangeOf) => ({
  queryKey: tenantKey(tenant, 'audit', 'change', of),
  queryFn: ({ signal }: { signal: AbortSignal }) =>
    body(
      api.GET('/api/v1/tenants/{tenant}/audit', {
        params: { path: { tenant }, query: { ...of, limit: 100 } },
        signal,
      }),
    ),
});

export function undoOf(tenant: string, answer: object | null | undefined) {
  const request = requestOf(answer);
  return request ? { label: 'Undo', run: () => asked.set({ tenant, request }) } : undefined;
}

export const closeUndo = () => asked.set(null);

export const useUndoAsked = () => useStore(asked);
