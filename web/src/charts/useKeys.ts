import { type RefObject, useRef } from 'react';
import type uPlot from 'uplot';
import type { ChartProps } from './chart';

const steps: Record<string, number> = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 };

/**
 * Arrows, Home and End move the crosshair. Enter, or Shift with an arrow, begins a selection; Enter again brushes it.
 */
export function useKeys(
  plot: RefObject<uPlot | null>,
  props: RefObject<ChartProps>,
  onRead: (index: number, selecting: boolean) => void,
) {
  const at = useRef<number | null>(null);
  const anchor = useRef<number | null>(null);

  function move(chart: uPlot, index: number) {
    const left = (x: number) => chart.valToPos(x, 'x');
    const { x } = props.current;
    const to = x[index];
    if (to === undefined) return;
    at.current = index;
    chart.setCursor({ left: left(to), top: 0 });
    const from = anchor.current === null ? undefined : x[anchor.current];
    if (from === undefined) clear(chart);
    else select(chart, left(from), left(to));
    onRead(index, anchor.current !== null);
  }

  function drop(chart: uPlot) {
    anchor.current = null;
    clear(chart);
  }

  return {
    onKeyDown(event: React.KeyboardEvent) {
      const chart = plot.current;
      const { x, onBrush } = props.current;
      if (!chart || x.length === 0 || event.ctrlKey || event.metaKey || event.altKey) return;
      const last = x.length - 1;
      const now = Math.min(at.current ?? last, last);
      const step = steps[event.key];
      if (step !== undefined) {
        if (event.shiftKey && onBrush) anchor.current ??= now;
        const first = at.current === null && !event.shiftKey; // the first press shows where one is
        move(chart, first ? now : Math.max(0, Math.min(last, now + step)));
      } else if (event.key === 'Home') move(chart, 0);
      else if (event.key === 'End') move(chart, last);
      else if (event.key === 'Enter' && onBrush) {
        if (anchor.current === null) {
          anchor.current = now;
          move(chart, now);
        } else {
          const [from = 0, to = 0] = [x[Math.min(anchor.current, now)], x[Math.max(anchor.current, now)]];
          drop(chart);
          onBrush(from, to);
        }
      } else if (event.key === 'Escape' && anchor.current !== null) {
        drop(chart);
        event.stopPropagation();
      } else return;
      event.preventDefault();
    },
    onBlur() {
      at.current = null;
      if (!plot.current) return;
      drop(plot.current);
      plot.current.setCursor({ left: -10, top: -10 });
    },
  };
}

export function select(chart: uPlot, from: number, to: number) {
  const left = Math.min(from, to);
  const width = Math.max(2, Math.abs(to - from));
  chart.setSelect({ left, width, top: 0, height: chart.over.clientHeight }, false);
}

export function clear(chart: uPlot) {
  chart.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
}
