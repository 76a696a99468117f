import { queryOptions } from '@tanstack/react-query';
import { api, body } from '~/api/client';
import { all } from '~/api/pages';
import { tenantKey } from '~/api/queries';

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
