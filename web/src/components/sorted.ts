export function sorted<Row>(
  rows: Row[],
  sort: string | undefined,
  by: Record<string, (row: Row) => string | number>,
): Row[] {
  const value = by[sort?.replace(/^-/, '') ?? ''];
  if (!value) return rows;
  const sign = sort?.startsWith('-') ? -1 : 1;
  return rows.toSorted((a, b) => {
    const [x, y] = [value(a), value(b)];
    return (
      sign *
      (typeof x === 'string' && typeof y === 'string'
        ? x.localeCompare(y, 'en', { numeric: true })
        : Number(x) - Number(y))
    );
  });
}
