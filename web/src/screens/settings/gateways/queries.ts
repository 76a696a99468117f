import { queryOptions } from '@tanstack/react-query';
import { api, tagged } from '~/api/client';
import { tenantKey } from '~/api/queries';

/** The mapping for proxies that ask over HTTP; the default one if the tenant has none. */
export const authorizeQuery = (tenant: string) =>
  queryOptions({
    queryKey: tenantKey(tenant, 'gateways', 'authorize'),
    queryFn: ({ signal }) =>
      tagged(
        api.GET('/api/v1/tenants/{tenant}/gateways/authorize', { params: { path: { tenant } }, signal }),
      ),
  });
