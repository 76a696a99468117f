import type { UseQueryResult } from '@tanstack/react-query';
import { ErrorState, LoadingLines } from './states';

interface Props<T> {
  query: UseQueryResult<T>;
  loading?: React.ReactNode;
  children: (data: T) => React.ReactNode;
}

/** What a query has: its data, even if it is from before the server went away; else why not. */
export function Query<T>({ query, loading, children }: Props<T>) {
  if (query.data !== undefined) return <>{children(query.data)}</>;
  if (query.isError) return <ErrorState error={query.error} onRetry={() => query.refetch()} />;
  return <>{loading ?? <LoadingLines />}</>;
}
