/** One page of a list. */
interface Page<T> {
  items: T[];
  next_cursor: string | null;
}

/**
 * Everything of a list, page after page, for screens that filter and sort what they have: plans, rules,
 * members. Lists without a natural end (users, audit) are read page by page instead.
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
