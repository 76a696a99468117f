import { queryOptions } from '@tanstack/react-query';
import { api } from '~/api/client';

export const factorQuery = queryOptions({
  queryKey: ['second factor'],
  queryFn: ({ signal }) => api.get('/api/v1/account/second-factor', { signal }),
});
