import { useMediaQuery } from '@mantine/hooks';
import type { LinkProps } from '@tanstack/react-router';
import { useVirtualizer } from '@tanstack/react-virtual';
import { useEffect, useRef, useState } from 'react';
import styles from './DataTable.module.css';
import { IconChevronDown } from './icons';
import { followRow, RowOpener } from './RowOpener';

export interface Column<Row> {
  key: string;
  header: string;
  quiet?: boolean;
  width?: number | string;
  numeric?: boolean;
  sortable?: boolean;
  /** Left out beside an open panel and, unless it is also `under`, on phones. */
  wide?: boolean;
  /** On phones it stands with its header on a line below the others. */
  under?: boolean;
  wraps?: boolean;
  /** Its text is the row’s link; by default that is the first column. */
  names?: boolean;
  render: (row: Row) => React.ReactNode;
}

export interface TableProps<Row> {
  label: string;
  columns: Column<Row>[];
  rows: Row[];
  rowKey: (row: Row) => string | number;
  to?: (row: Row) => LinkProps;
  /** Handles a plain click instead of the link. */
  onOpen?: (row: Row) => void;
  open?: string | number;
  /** "rate", or "-rate" for descending. */
  sort?: string;
  onSort?: (sort: string) => void;
}

const rowHeight = 40;
const stackedHeight = 64; // of a row that is not drawn yet
const virtualFrom = 200;

/** As in DataTable.module.css. */
const narrow = '(width <= 720px)';

/** Above 200 rows the table scrolls by itself and renders only the visible rows. */
export function DataTable<Row>(props: TableProps<Row>) {
  const { label, columns, rows, rowKey, to, onOpen, open } = props;
  const opens = !!to || !!onOpen;
  const naming = columns.find(({ names }) => names) ?? columns[0];
  const scroller = useRef<HTMLDivElement>(null);
  const virtual = rows.length > virtualFrom;
  const stacked = columns.some(({ under }) => under);
  const isNarrow = useMediaQuery(narrow, undefined, { getInitialValueInEffect: false });
  const stacks = stacked && isNarrow;
  const measured = virtual && (stacks || columns.some(({ wraps }) => wraps)); // all other rows are equally high
  const virtualizer = useVirtualizer({
    count: rows.length,
    enabled: virtual, // else it measures, which forces a layout while the page starts
    getScrollElement: () => scroller.current,
    estimateSize: () => (stacks ? stackedHeight : rowHeight),
    getItemKey: measured ? (index) => rowKey(rows[index] as Row) : undefined,
    overscan: 12,
    initialRect: { width: 1000, height: 640 },
  });
  // Heights that were measured stacked are wrong where rows do not stack, and the other way round.
  // biome-ignore lint/correctness/useExhaustiveDependencies: it runs when rows begin or end to stack
  useEffect(() => (measured ? () => virtualizer.measure() : undefined), [measured, stacks, virtualizer]);
  const [current, setCurrent] = useState(0);
  const active = Math.min(current, rows.length - 1);

  const items = virtualizer.getVirtualItems();
  const first = virtual ? (items[0]?.index ?? 0) : 0;
  const last = virtual ? (items.at(-1)?.index ?? -1) : rows.length - 1;
  const above = items[0]?.start ?? 0;
  const below = virtualizer.getTotalSize() - (items.at(-1)?.end ?? 0);

  function focus(index: number) {
    const next = Math.max(0, Math.min(index, rows.length - 1));
    setCurrent(next);
    if (virtual) virtualizer.scrollToIndex(next);
    const row = () => scroller.current?.querySelector<HTMLElement>(`[data-index="${next}"] [data-opener]`);
    if (row()) row()?.focus();
    else requestAnimationFrame(() => row()?.focus());
  }

  function walk(event: React.KeyboardEvent, index: number) {
    const steps: Record<string, number> = { ArrowDown: 1, ArrowUp: -1, PageDown: 12, PageUp: -12 };
    const step = steps[event.key];
    if (step) focus(index + step);
    else if (event.key === 'Home') focus(0);
    else if (event.key === 'End') focus(rows.length - 1);
    else return; // the link handles Enter
    event.preventDefault();
  }

  return (
    // biome-ignore lint/a11y/useAriaPropsSupportedByRole: it has the role whenever it has the label
    <div
      ref={scroller}
      className={styles.scroller}
      data-virtual={virtual || undefined}
      tabIndex={virtual ? 0 : undefined}
      role={virtual ? 'group' : undefined}
      aria-label={virtual ? `${label}, scrollable` : undefined}
    >
      <table
        className={styles.table}
        data-stacked={stacked || undefined}
        aria-label={label}
        aria-rowcount={rows.length + 1}
      >
        <colgroup>
          {columns.map((column) => (
            <col key={column.key} style={{ width: column.width }} className={column.wide ? styles.wide : undefined} />
          ))}
        </colgroup>
        <Head {...props} />
        <tbody>
          {virtual && <Gap height={above} columns={columns.length} />}
          {rows.slice(first, last + 1).map((row, offset) => {
            const index = first + offset;
            const key = rowKey(row);
            return (
              <tr
                key={key}
                ref={measured ? virtualizer.measureElement : undefined}
                data-index={index}
                data-opens={opens || undefined}
                aria-rowindex={index + 2}
                aria-current={open === key || undefined}
                onClick={opens ? followRow : undefined}
                onAuxClick={opens ? followRow : undefined}
              >
                {columns.map((column) => (
                  <td
                    key={column.key}
                    className={className(column)}
                    data-under={column.under ? column.header : undefined}
                  >
                    {opens && column === naming ? (
                      <RowOpener
                        to={to?.(row)}
                        onOpen={onOpen && (() => onOpen(row))}
                        tabIndex={index === active ? 0 : -1}
                        onKeyDown={(event) => walk(event, index)}
                        onFocus={() => setCurrent(index)}
                      >
                        {column.render(row)}
                      </RowOpener>
                    ) : (
                      column.render(row)
                    )}
                  </td>
                ))}
              </tr>
            );
          })}
          {virtual && <Gap height={below} columns={columns.length} />}
        </tbody>
      </table>
    </div>
  );
}

function Head<Row>({ columns, sort, onSort }: TableProps<Row>) {
  return (
    <thead>
      <tr>
        {columns.map((column) => {
          const direction = sort === column.key ? 'ascending' : sort === `-${column.key}` ? 'descending' : undefined;
          return (
            <th key={column.key} scope="col" className={className(column)} aria-sort={direction}>
              {column.quiet ? (
                <span className="aside">{column.header}</span>
              ) : column.sortable && onSort ? (
                <button
                  type="button"
                  className={styles.sort}
                  onClick={() => onSort(direction === 'descending' ? column.key : `-${column.key}`)}
                >
                  {column.header}
                  <IconChevronDown size={12} aria-hidden data-direction={direction} />
                </button>
              ) : (
                column.header
              )}
            </th>
          );
        })}
      </tr>
    </thead>
  );
}

function Gap({ height, columns }: { height: number; columns: number }) {
  if (height <= 0) return null;
  return (
    <tr aria-hidden className={styles.gap}>
      <td colSpan={columns} style={{ height }} />
    </tr>
  );
}

function className<Row>(column: Column<Row>): string {
  const { numeric, wide, wraps } = column;
  return [numeric && styles.numeric, wide && styles.wide, wraps && styles.wraps].filter(Boolean).join(' ');
}
