import type { UseQueryResult } from '@tanstack/react-query';
import { useDeferredValue } from 'react';
import { ErrorState, LoadingLines } from './states';

interface Props<T> {
  query: UseQueryResult<T>;
  loading?: React.ReactNode;
  children: (data: T) => React.ReactNode;
}

/** A refetch that failed leaves the data shown. */
export function Query<T>({ query, loading, children }: Props<T>) {
  const { data } = query;
  const isDrawn = useDeferredValue(data !== undefined); // first in steps, between which the page answers
  if (data !== undefined && isDrawn) return <>{children(data)}</>;
  if (data === undefined && query.isError) {
    return <ErrorState error={query.error} onRetry={() => query.refetch()} />;
  }
  return <>{loading ?? <LoadingLines />}</>;
}
