import { type InfiniteData, infiniteQueryOptions } from '@tanstack/react-query';

interface Page<T> {
  items: T[];
  next_cursor: string | null;
}

/** For lists that are bounded; users are read page by page. */
export async function all<T>(page: (cursor: string | undefined) => Promise<Page<T>>): Promise<T[]> {
  const items: T[] = [];
  let cursor: string | undefined;
  do {
    const next = await page(cursor);
    items.push(...next.items);
    cursor = next.next_cursor ?? undefined;
  } while (cursor);
  return items;
}

/** A cursor is valid only with its first page's parameters, which `fix` reads. */
export function pagesQuery<P extends Page<unknown>, F = undefined>(
  queryKey: readonly unknown[],
  read: (cursor: string | undefined, signal: AbortSignal, fixed: F) => Promise<P>,
  fix: () => F = () => undefined as F,
) {
  return infiniteQueryOptions({
    queryKey,
    initialPageParam: undefined as { cursor: string; fixed: F } | undefined,
    queryFn: async ({ pageParam, signal }) => {
      const fixed = pageParam ? pageParam.fixed : fix();
      return { ...(await read(pageParam?.cursor, signal, fixed)), fixed };
    },
    getNextPageParam: ({ next_cursor, fixed }) => (next_cursor === null ? undefined : { cursor: next_cursor, fixed }),
  });
}

export function rowsOf<T>({ pages }: InfiniteData<{ items: T[] }, unknown>): T[] {
  return pages.flatMap(({ items }) => items);
}
