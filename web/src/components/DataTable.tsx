import { Link, type LinkProps } from '@tanstack/react-router';
import { useVirtualizer } from '@tanstack/react-virtual';
import { useRef, useState } from 'react';
import styles from './DataTable.module.css';
import { IconChevronDown } from './icons';

export interface Column<Row> {
  key: string;
  header: string;
  /** The header is read out, and not seen: of a column of buttons. */
  quiet?: boolean;
  /** CSS width; the columns without one share the rest. */
  width?: number | string;
  /** Numbers are right-aligned, with tabular digits. */
  numeric?: boolean;
  sortable?: boolean;
  /** Left out on phones. */
  wide?: boolean;
  /** What names the row: its text is the link that opens it. The first column is, unless another one says so. */
  names?: boolean;
  render: (row: Row) => React.ReactNode;
}

interface Props<Row> {
  /** What the table holds, for those who cannot see it. */
  label: string;
  columns: Column<Row>[];
  rows: Row[];
  rowKey: (row: Row) => string | number;
  /** Where a row leads: a page, or this page with the row's panel. A new tab can be opened there too. */
  to?: (row: Row) => LinkProps;
  /** Opens a row in another way than by going there, such as a panel that shares one history entry. */
  onOpen?: (row: Row) => void;
  /** The row that is open. */
  open?: string | number;
  /** "rate", or "-rate" for descending; it lives in the URL. */
  sort?: string;
  onSort?: (sort: string) => void;
}

const rowHeight = 40;
const virtualFrom = 200;

/**
 * A table that stays quick and can be walked with the keyboard: arrows, Home, End, Page up and down,
 * Enter to open. A row that opens something has one link, and a click anywhere on the row is one on it. Up to 200 rows it is as tall as they are; beyond that it scrolls by itself and keeps
 * only the rows in sight in the document.
 */
export function DataTable<Row>(props: Props<Row>) {
  const { label, columns, rows, rowKey, to, onOpen, open } = props;
  const opens = !!to || !!onOpen;
  const naming = columns.find(({ names }) => names) ?? columns[0];
  const scroller = useRef<HTMLDivElement>(null);
  const virtual = rows.length > virtualFrom;
  const virtualizer = useVirtualizer({
    count: virtual ? rows.length : 0,
    getScrollElement: () => scroller.current,
    estimateSize: () => rowHeight,
    overscan: 12,
    initialRect: { width: 1000, height: 640 },
  });
  const [current, setCurrent] = useState(0);
  const active = Math.min(current, rows.length - 1);

  const items = virtualizer.getVirtualItems();
  const first = virtual ? (items[0]?.index ?? 0) : 0;
  const last = virtual ? (items.at(-1)?.index ?? -1) : rows.length - 1;

  function focus(index: number) {
    const next = Math.max(0, Math.min(index, rows.length - 1));
    setCurrent(next);
    if (virtual) virtualizer.scrollToIndex(next);
    const row = () => scroller.current?.querySelector<HTMLElement>(`[data-index="${next}"] [data-opener]`);
    // A row that was out of sight is in the document after the next frame.
    if (row()) row()?.focus();
    else requestAnimationFrame(() => row()?.focus());
  }

  function walk(event: React.KeyboardEvent, index: number) {
    const steps: Record<string, number> = { ArrowDown: 1, ArrowUp: -1, PageDown: 12, PageUp: -12 };
    const step = steps[event.key];
    if (step) focus(index + step);
    else if (event.key === 'Home') focus(0);
    else if (event.key === 'End') focus(rows.length - 1);
    else return; // Enter is the link's own
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
      <table className={styles.table} aria-label={label} aria-rowcount={rows.length + 1}>
        <colgroup>
          {columns.map((column) => (
            <col
              key={column.key}
              style={{ width: column.width }}
              className={column.wide ? styles.wide : undefined}
            />
          ))}
        </colgroup>
        <Head {...props} />
        <tbody>
          {virtual && <Gap height={first * rowHeight} columns={columns.length} />}
          {rows.slice(first, last + 1).map((row, offset) => {
            const index = first + offset;
            const key = rowKey(row);
            return (
              <tr
                key={key}
                data-index={index}
                data-opens={opens || undefined}
                aria-rowindex={index + 2}
                aria-current={open === key || undefined}
                onClick={opens ? followRow : undefined}
                onAuxClick={opens ? followRow : undefined}
              >
                {columns.map((column) => (
                  <td key={column.key} className={className(column)}>
                    {opens && column === naming ? (
                      <Opener
                        to={to?.(row)}
                        onOpen={onOpen && (() => onOpen(row))}
                        tabIndex={index === active ? 0 : -1}
                        onKeyDown={(event) => walk(event, index)}
                        onFocus={() => setCurrent(index)}
                      >
                        {column.render(row)}
                      </Opener>
                    ) : (
                      column.render(row)
                    )}
                  </td>
                ))}
              </tr>
            );
          })}
          {virtual && <Gap height={(rows.length - 1 - last) * rowHeight} columns={columns.length} />}
        </tbody>
      </table>
    </div>
  );
}

function Head<Row>({ columns, sort, onSort }: Props<Row>) {
  return (
    <thead>
      <tr>
        {columns.map((column) => {
          const direction =
            sort === column.key ? 'ascending' : sort === `-${column.key}` ? 'descending' : undefined;
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

/** Room for the rows out of sight. */
function Gap({ height, columns }: { height: number; columns: number }) {
  if (height <= 0) return null;
  return (
    <tr aria-hidden className={styles.gap}>
      <td colSpan={columns} style={{ height }} />
    </tr>
  );
}

interface OpenerProps {
  to?: LinkProps;
  onOpen?: () => void;
  tabIndex: number;
  onKeyDown: (event: React.KeyboardEvent) => void;
  onFocus: () => void;
  children: React.ReactNode;
}

/** The link of a row; a button where a row has no address. */
function Opener({ to, onOpen, children, ...rest }: OpenerProps) {
  const props = { ...rest, className: styles.opener, 'data-opener': true };
  if (!to) {
    return (
      <button type="button" {...props} onClick={onOpen}>
        {children}
      </button>
    );
  }
  return (
    <Link
      {...to}
      {...props}
      onClick={(event) => {
        if (!onOpen || isForNewTab(event)) return;
        event.preventDefault();
        onOpen();
      }}
    >
      {children}
    </Link>
  );
}

function isForNewTab({ button, ctrlKey, metaKey, shiftKey }: React.MouseEvent): boolean {
  return button === 1 || ctrlKey || metaKey || shiftKey;
}

/** A click beside the row's link is one on it, unless it is on something else or ends a selection of text. */
function followRow(event: React.MouseEvent<HTMLElement>): void {
  if ((event.target as Element).closest('a, button, input, label') || getSelection()?.toString()) return;
  const opener = event.currentTarget.querySelector<HTMLElement>('[data-opener]');
  if (!isForNewTab(event)) {
    if (event.button === 0) opener?.click();
  } else if (opener instanceof HTMLAnchorElement) window.open(opener.href, '_blank', 'noopener');
}

function className<Row>(column: Column<Row>): string {
  return [column.numeric && styles.numeric, column.wide && styles.wide].filter(Boolean).join(' ');
}

/** The rows in the order of a sort parameter; equal ones stay as they came. */
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
