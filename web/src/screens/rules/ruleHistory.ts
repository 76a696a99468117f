import { queryOptions } from '@tanstack/react-query';
import { api } from '~/api/client';
import { tenantKey } from '~/api/queries';
import type { AuditEntry } from '~/api/types';

export const ruleHistoryQuery = (tenant: string, ruleId: string) =>
  queryOptions({
    queryKey: tenantKey(tenant, 'audit', 'rule', ruleId),
    queryFn: ({ signal }) =>
      api.get('/api/v1/tenants/{tenant}/audit', {
        tenant,
        object_kind: 'rule',
        object_id: String(ruleId),
        limit: 20,
        signal,
      }),
  });

export function changedMode(entries: AuditEntry[], since: string): boolean {
  return entries.some(
    ({ at, before, after }) => before && after && before.mode !== after.mode && Date.parse(at) >= Date.parse(since),
  );
}
