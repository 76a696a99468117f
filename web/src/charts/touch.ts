import type { RefObject } from 'react';
import type uPlot from 'uplot';
import type { ChartProps } from './chart';
import { clear, select } from './useKeys';

const shortest = 8; // pixels; less is a tap

/**
 * Brushing with a finger or a pen, which uPlot lacks. A vertical movement scrolls the page (touch-action in chart.css).
 */
export function brushByTouch(props: RefObject<ChartProps>): uPlot.Plugin {
  return {
    hooks: {
      ready: (chart) => {
        const { over } = chart;
        let begun: { pointer: number; left: number } | null = null;
        const leftOf = (event: PointerEvent) => {
          const { left, width } = over.getBoundingClientRect();
          return Math.max(0, Math.min(width, event.clientX - left));
        };
        over.addEventListener('pointerdown', (event) => {
          if (event.pointerType === 'mouse' || begun) return;
          begun = { pointer: event.pointerId, left: leftOf(event) };
        });
        over.addEventListener('pointermove', (event) => {
          if (begun?.pointer !== event.pointerId) return;
          const left = leftOf(event);
          chart.setCursor({ left, top: 0 });
          if (props.current.onBrush) select(chart, begun.left, left);
        });
        over.addEventListener('pointerup', (event) => {
          if (begun?.pointer !== event.pointerId) return;
          const [from, to] = [begun.left, leftOf(event)].toSorted((a, b) => a - b) as [number, number];
          begun = null;
          clear(chart);
          if (to - from >= shortest) props.current.onBrush?.(chart.posToVal(from, 'x'), chart.posToVal(to, 'x'));
        });
        over.addEventListener('pointercancel', () => {
          begun = null;
          clear(chart);
        });
      },
    },
  };
}
