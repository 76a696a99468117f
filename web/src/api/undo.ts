import { api, requestOf } from './client';
import { tenantKey } from './queries';
import { makeStore, useStore } from './store';
import type { AuditEntry } from './types';

const asked = makeStore<{ tenant: string; request: string } | null>(null);

export type ChangeOf = { change_id: string } | { request_id: string } | { audit_id: string; row?: number };

export const changeQuery = (tenant: string, of: ChangeOf) => ({
  queryKey: tenantKey(tenant, 'audit', 'change', of),
  queryFn: async ({ signal }: { signal: AbortSignal }) => {
    if ('audit_id' in of) {
      const entry = await entryQuery(tenant, of.audit_id).queryFn({ signal });
      return { items: of.row ? unpacked(entry).slice(of.row - 1, of.row) : [entry], next_cursor: null };
    }
    return api.get('/api/v1/tenants/{tenant}/audit', { tenant, ...of, limit: 100, signal });
  },
});

export const entryQuery = (tenant: string, audit_id: string) => ({
  queryKey: tenantKey(tenant, 'audit', audit_id),
  queryFn: ({ signal }: { signal: AbortSignal }) =>
    api.get('/api/v1/tenants/{tenant}/audit/{audit_id}', { tenant, audit_id, signal }),
  staleTime: Number.POSITIVE_INFINITY, // what happened stays
});

export function unpacked(entry: AuditEntry): AuditEntry[] {
  const { rows = [], row_count: _, ...rest } = entry;
  return rows.map(({ id, ...images }, i) => ({ ...rest, ...images, row: i + 1, object: { ...rest.object, id } }));
}

export function undoOf(tenant: string, answer: object | null | undefined) {
  const request = requestOf(answer);
  return request ? { label: 'Undo', run: () => asked.set({ tenant, request }) } : undefined;
}

export const closeUndo = () => asked.set(null);

export const useUndoAsked = () => useStore(asked);
