import type { RefObject } from 'react';
import uPlot from 'uplot';
import { duration, exactNumber, shortNumber } from '~/domain/format';
import { timeZone, zone } from '~/domain/zone';
import type { ChartProps, Series } from './chart';
import { crosses, dots } from './marks';
import { brushByTouch } from './touch';

/** Whether a line has a second one for its unfinished end. */
function hasTail({ points, bars }: Series): boolean {
  return !points && !bars;
}

export function dataOf({ x, series, unfinished }: ChartProps): uPlot.AlignedData {
  const last = x.length - 1;
  const values = series.map((one) =>
    unfinished && hasTail(one) ? one.values.map((value, index) => (index === last ? null : value)) : one.values,
  );
  const tails = unfinished
    ? series.filter(hasTail).map((one) => one.values.map((value, index) => (index >= last - 1 ? value : null)))
    : [];
  return [x, ...values, ...tails] as uPlot.AlignedData;
}

function variable(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function hue(tone: Series['tone']): string {
  if (tone === 'accent') return variable('--mantine-color-sluice-5');
  return variable(tone === 'neutral' ? '--text-faint' : `--${tone}`);
}

export function options(
  latest: RefObject<ChartProps>,
  width: number,
  height: number,
  onCursor: (index: number | null) => void,
): uPlot.Options {
  const { series, sync, elapsed, onBrush, unfinished } = latest.current;
  const font = `11px ${variable('--mantine-font-family') || 'sans-serif'}`;
  const grid = { stroke: variable('--grid'), width: 1 };
  const axis = { stroke: variable('--text-faint'), font, grid, ticks: { show: false } };
  const tails = unfinished ? series.filter(hasTail) : [];
  return {
    width,
    height,
    padding: [8, 28, 0, 0], // half of the last tick's "12:28:00"
    tzDate: inZone,
    cursor: {
      sync: sync ? { key: sync } : undefined,
      drag: { x: !!onBrush, y: false, setScale: false },
      points: { size: 6 },
      y: false,
    },
    legend: { show: false }, // Legend.tsx
    scales: {
      x: { time: !elapsed, range: series.some(({ bars }) => bars) ? withLastBar : undefined },
      y: { range: (_, __, max) => [0, Math.max(latest.current.yMin ?? 0, (max ?? 0) * 1.06) || 1] },
    },
    axes: [
      {
        ...axis,
        grid: { show: false },
        size: 30,
        gap: 8, // below the 0 of the other axis
        space: tickSpace,
        ...(elapsed && { incrs: elapsedSteps }),
        values: (_, ticks) =>
          elapsed ? ticks.map((t) => elapsedTick(t, ticks)) : ticks.map((t) => timeTick(t, ticks)),
      },
      { ...axis, size: 52, values: (_, ticks) => ticks.map(shortNumber) },
    ],
    series: [
      {},
      ...series.map(look),
      ...tails.map((one): uPlot.Series => ({ ...look(one), dash: [3, 4], fill: undefined })),
    ],
    plugins: [brushByTouch(latest)],
    hooks: {
      setCursor: [(plot) => onCursor(plot.cursor.idx ?? null)],
      setSelect: [
        (plot) => {
          const { left, width: selected } = plot.select;
          if (selected < 4) return;
          latest.current.onBrush?.(plot.posToVal(left, 'x'), plot.posToVal(left + selected, 'x'));
          plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        },
      ],
    },
  };
}

/** Pixels for a tick's text, and at least the time between two points, so that no tick stands between them. */
function tickSpace(plot: uPlot, _: number, min: number, max: number, width: number): number {
  const [first = min, second = max] = plot.data[0];
  return Math.max(64, (0.99 * width * (second - first)) / (max - min || 1));
}

/** A bar begins at its x: the last one needs as much room as the others. */
function withLastBar(plot: uPlot, min: number, max: number): uPlot.Range.MinMax {
  const [first = 0, second = first] = plot.data[0];
  return [min, max + (second - first)];
}

/** The moment whose fields uPlot reads, to put ticks at whole hours and days. */
function inZone(seconds: number): Date {
  const at = new Date(seconds * 1000);
  return zone === 'utc' ? uPlot.tzDate(at, 'Etc/UTC') : at;
}

/** "14:05"; the day at midnight; with seconds where ticks are closer than a minute. */
function timeTick(seconds: number, ticks: number[]): string {
  const at = seconds * 1000;
  const midnight = secondTick.format(at) === '00:00:00';
  if (midnight) return dayTick.format(at);
  return ((ticks[1] ?? seconds + 60) - (ticks[0] ?? seconds) < 60 ? secondTick : minuteTick).format(at);
}

/** Steps of elapsed time, so that ticks are at whole minutes and hours. */
const elapsedSteps = [
  ...[0.001, 0.01, 0.1].flatMap((step) => [step, 2 * step, 5 * step]),
  ...[1, 2, 5, 10, 15, 30],
  ...[60, 3600].flatMap((unit) => [1, 2, 5, 10, 15, 30].map((count) => count * unit)),
  ...[1, 2, 7, 14, 30, 90].map((days) => days * 86_400),
];

/** All ticks of an axis have one unit where they can: "90 s" beside "120 s". */
export function elapsedTick(seconds: number, ticks: number[]): string {
  if (seconds === 0) return '0';
  const step = (ticks[1] ?? seconds) - (ticks[0] ?? 0);
  return step >= 1 && step < 60 ? `${exactNumber(seconds)}\u202fs` : duration(seconds * 1000);
}

const dayTick = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short', timeZone });
const minuteTick = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', timeZone });
const secondTick = new Intl.DateTimeFormat('en-GB', {
  hour: '2-digit',
  minute: '2-digit',
  second: '2-digit',
  timeZone,
});

function look(series: Series): uPlot.Series {
  const colour = hue(series.tone);
  if (series.points) {
    const draw = series.points === 'dot' ? dots(colour) : crosses(colour);
    return { label: series.label, stroke: colour, paths: () => null, points: { show: draw } };
  }
  return {
    label: series.label,
    stroke: colour,
    width: series.bars ? 0 : 1.5, // a bar of nothing is nothing
    dash: series.dashed ? [4, 4] : undefined,
    fill: series.fill || series.bars ? `${colour}${series.bars ? '' : '1f'}` : undefined,
    paths: series.bars
      ? uPlot.paths.bars?.({ size: [0.8, 24], align: 1 })
      : series.stepped
        ? uPlot.paths.stepped?.({ align: 1 })
        : undefined,
    points: { show: false },
  };
}
