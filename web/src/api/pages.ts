interface Page<T> {
  items: T[];
  next_cursor: string | null;
}

/**
 * All pages of a list, for screens that filter and sort in the browser. Unbounded lists, such as users, are
 * read page by page instead.
 */
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
