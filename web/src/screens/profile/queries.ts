import { queryOptions } from '@tanstack/react-query';
import { api, body } from '~/api/client';

export const factorQuery = queryOptions({
  queryKey: ['second factor'],
  queryFn: ({ signal }) => body(api.GET('/api/v1/account/second-factor', { signal })),
});
