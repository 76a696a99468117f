import { queryOptions } from '@tanstack/react-query';
import { api, body } from './client';
import { tenantKey } from './queries';

/** The entry of the audit log that says who removed a rule, and what the rule was; null if there is none. */
export const removalQuery = (tenant: string, rule: number) =>
  queryOptions({
    queryKey: tenantKey(tenant, 'audit', 'removal', rule),
    queryFn: async ({ signal }) => {
      const { items } = await body(
        api.GET('/api/v1/tenants/{tenant}/audit', {
          params: {
            path: { tenant },
            query: { object_kind: 'rule', object_id: String(rule), action: 'remove', limit: 1 },
          },
          signal,
        }),
      );
      return items[0] ?? null;
    },
  });
