import type { UseQueryResult } from '@tanstack/react-query';
import { ErrorState, LoadingLines } from './states';

interface Props<T> {
  query: UseQueryResult<T>;
  loading?: React.ReactNode;
  children: (data: T) => React.ReactNode;
}

/** Renders the data of a query, even if a refetch failed; else its error or a placeholder. */
export function Query<T>({ query, loading, children }: Props<T>) {
  if (query.data !== undefined) return <>{children(query.data)}</>;
  if (query.isError) return <ErrorState error={query.error} onRetry={() => query.refetch()} />;
  return <>{loading ?? <LoadingLines />}</>;
}
