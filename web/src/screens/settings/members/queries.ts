import { queryOptions } from '@tanstack/react-query';
import { api } from '~/api/client';
import { all } from '~/api/pages';
import { tenantKey } from '~/api/queries';

export const invitationsQuery = (tenant: string) =>
  queryOptions({
    queryKey: tenantKey(tenant, 'invitations'),
    queryFn: ({ signal }) =>
      all((cursor) => api.get('/api/v1/tenants/{tenant}/invitations', { tenant, limit: 500, cursor, signal })),
  });
