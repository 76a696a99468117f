import {
  defaultRangeExtractor,
  measureElement,
  type Range,
  useVirtualizer,
  type Virtualizer,
} from '@tanstack/react-virtual';
import type { RefObject } from 'react';

/** Up to so many rows and columns are all drawn. */
const smallRows = 60;
const smallColumns = 24;

/** Sizes in pixels; Matrix.module.css has the same. */
const rowHeight = 52;
const columnWidth = 148;
const headerHeight = 44;
const firstWidth = 248;
const groupHeight = 32;

export interface Position {
  row: number;
  column: number;
}

/** A row or column that is drawn, after so much that is not: in pixels for rows, in columns for columns. */
interface Drawn {
  index: number;
  skipped: number;
}

interface Visible {
  rows: Drawn[];
  columns: Drawn[];
  rowsAfter: number;
  columnsAfter: number;
  measureRow: ((row: HTMLElement | null) => void) | undefined;
  wide: boolean;
  /** Everything is drawn, so that phones can show plans below each other. */
  whole: boolean;
}

/** The current cell is drawn too, so that it keeps the focus wherever the matrix is scrolled. */
export function useVisible(
  scroller: RefObject<HTMLElement | null>,
  count: { rows: number; columns: number },
  at: Position,
): Visible {
  const long = count.rows > smallRows;
  const wide = count.columns > smallColumns;
  const getScrollElement = () => scroller.current;
  const rows = useVirtualizer({
    count: long ? count.rows : 0,
    getScrollElement,
    estimateSize: () => rowHeight,
    measureElement: (row, entry, rows) =>
      measureElement(row, entry, rows) + (row.hasAttribute('data-begins') ? groupHeight : 0),
    paddingStart: headerHeight,
    overscan: 6,
    rangeExtractor: (range) => including(range, at.row),
    initialRect: { width: 1200, height: 800 },
  });
  const columns = useVirtualizer({
    horizontal: true,
    count: wide ? count.columns : 0,
    getScrollElement,
    estimateSize: () => columnWidth,
    paddingStart: firstWidth,
    overscan: 2,
    rangeExtractor: (range) => including(range, at.column),
    initialRect: { width: 1200, height: 800 },
  });
  const drawnRows = long ? drawnOf(rows, headerHeight) : { drawn: every(count.rows), after: 0 };
  const drawnColumns = wide ? drawnOf(columns, firstWidth) : { drawn: every(count.columns), after: 0 };
  const inColumns = (pixels: number) => Math.round(pixels / columnWidth);
  return {
    rows: drawnRows.drawn,
    columns: drawnColumns.drawn.map(({ index, skipped }) => ({ index, skipped: inColumns(skipped) })),
    rowsAfter: drawnRows.after,
    columnsAfter: inColumns(drawnColumns.after),
    measureRow: long ? rows.measureElement : undefined,
    wide,
    whole: !long && !wide,
  };
}

function every(count: number): Drawn[] {
  return Array.from({ length: count }, (_, index) => ({ index, skipped: 0 }));
}

function including(range: Range, index: number): number[] {
  const visible = defaultRangeExtractor(range);
  if (index >= range.count || visible.includes(index)) return visible;
  return [...visible, index].sort((a, b) => a - b);
}

function drawnOf(virtualizer: Virtualizer<HTMLElement, Element>, start: number) {
  let end = start;
  const drawn = virtualizer.getVirtualItems().map((item): Drawn => {
    const skipped = item.start - end;
    end = item.end;
    return { index: item.index, skipped };
  });
  return { drawn, after: virtualizer.getTotalSize() - end };
}
