import type { Column } from './DataTable';
import { Num } from './Num';
import { RelativeTime } from './Time';

/** A column of ages, which a row without a time leaves empty. */
export function timeColumn<Row>(
  key: string,
  header: string,
  at: (row: Row) => string | null,
  more: Partial<Column<Row>> = {},
): Column<Row> {
  const render = (row: Row) => {
    const time = at(row);
    return time && <RelativeTime at={time} />;
  };
  return { key, header, width: 120, wide: true, render, ...more };
}

export function countColumn<Row>(
  key: string,
  header: string,
  width: number | undefined,
  count: (row: Row) => number,
  more: Partial<Column<Row>> = {},
): Column<Row> {
  return { key, header, width, numeric: true, render: (row) => <Num value={count(row)} />, ...more };
}

/** The column of what can be done with a row, whose header is for screen readers. */
export function actsColumn<Row>(
  width: Column<Row>['width'],
  render: Column<Row>['render'],
  more: Partial<Column<Row>> = {},
): Column<Row> {
  return { key: 'acts', header: 'Actions', quiet: true, width, render, ...more };
}
