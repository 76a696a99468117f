import { queryOptions, useQuery } from '@tanstack/react-query';
import { api } from './client';
import { tenantKey } from './queries';
import type { Rule } from './types';

export const removalQuery = (tenant: string, rule: string) =>
  queryOptions({
    queryKey: tenantKey(tenant, 'audit', 'removal', rule),
    queryFn: async ({ signal }) => {
      const { items } = await api.get('/api/v1/tenants/{tenant}/audit', {
        tenant,
        object_kind: 'rule',
        object_id: String(rule),
        action: 'remove',
        limit: 1,
        signal,
      });
      return items[0] ?? null;
    },
  });

export function useRemovedRule(tenant: string, rule: string | undefined) {
  const { data } = useQuery({ ...removalQuery(tenant, rule ?? ''), enabled: rule !== undefined });
  if (!data?.before) return undefined;
  const { key_pattern, name, plan } = data.before as unknown as Pick<Rule, 'key_pattern' | 'name' | 'plan'>;
  return { key_pattern, name, plan, removed: true };
}
