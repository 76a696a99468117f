import { queryOptions } from '@tanstack/react-query';
import { api, body } from '~/api/client';
import { all } from '~/api/pages';
import { tenantKey } from '~/api/queries';
import type { Key } from '~/api/types';

export const keysQuery = (tenant: string) =>
  queryOptions({
    queryKey: tenantKey(tenant, 'keys'),
    queryFn: ({ signal }) =>
      all((cursor) =>
        body(
          api.GET('/api/v1/tenants/{tenant}/api-keys', {
            params: { path: { tenant }, query: { limit: 500, cursor } },
            signal,
          }),
        ),
      ),
  });

/** Whether a key still opens anything. */
export function keyState(key: Key, now: number): 'active' | 'ending' | 'expired' | 'revoked' {
  if (key.revoked_at) return 'revoked';
  if (!key.expires_at) return 'active';
  return Date.parse(key.expires_at) <= now ? 'expired' : 'ending';
}
