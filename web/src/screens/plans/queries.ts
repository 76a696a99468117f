import { queryOptions } from '@tanstack/react-query';
import { api, body } from '~/api/client';
import { all } from '~/api/pages';
import { tenantKey } from '~/api/queries';

export const matrixQuery = (tenant: string) =>
  queryOptions({
    queryKey: tenantKey(tenant, 'matrix'),
    queryFn: ({ signal }) =>
      all((cursor) =>
        body(
          api.GET('/api/v1/tenants/{tenant}/matrix', {
            params: { path: { tenant }, query: { limit: 500, cursor } },
            signal,
          }),
        ),
      ),
    // Somebody else may change limits. Their denials are as fresh.
    refetchInterval: 15_000,
  });
