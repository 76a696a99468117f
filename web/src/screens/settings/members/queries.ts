import { queryOptions } from '@tanstack/react-query';
import { api, body } from '~/api/client';
import { all } from '~/api/pages';
import { tenantKey } from '~/api/queries';

export { membersQuery } from '~/api/queries';

export const invitationsQuery = (tenant: string) =>
  queryOptions({
    queryKey: tenantKey(tenant, 'invitations'),
    queryFn: ({ signal }) =>
      all((cursor) =>
        body(
          api.GET('/api/v1/tenants/{tenant}/invitations', {
            params: { path: { tenant }, query: { limit: 500, cursor } },
            signal,
          }),
        ),
      ),
  });
