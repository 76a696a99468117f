import { useComputedColorScheme } from '@mantine/core';
import { useElementSize } from '@mantine/hooks';
import { useEffect, useRef } from 'react';
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import './chart.css';
import { duration, shortNumber } from '~/domain/format';
import type { ChartProps, Series } from './chart';
import { crosses, dots } from './marks';

/** The one look of all charts: thin lines, a light grid, y from zero, a crosshair with the values below. */
export default function ChartCanvas(props: ChartProps) {
  const { label, x, series, height = 180, sync, elapsed } = props;
  const { ref, width } = useElementSize<HTMLDivElement>();
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const scheme = useComputedColorScheme('light');
  const latest = useRef(props);
  latest.current = props;

  // A new plot only when its make-up changes; new values go into the one that is there.
  const makeUp = JSON.stringify([
    series.map(({ values: _, ...look }) => look),
    sync,
    elapsed,
    height,
    !!props.onBrush,
  ]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: makeUp stands for all that the options are made of
  useEffect(() => {
    if (!place.current || width === 0) return;
    const made = new uPlot(options(latest, width, height), dataOf(latest.current), place.current);
    plot.current = made;
    return () => {
      made.destroy();
      plot.current = null;
    };
  }, [makeUp, scheme, width === 0]);

  useEffect(() => {
    if (width > 0) plot.current?.setSize({ width, height });
  }, [width, height]);

  // biome-ignore lint/correctness/useExhaustiveDependencies: the data are x and the series' values
  useEffect(() => {
    plot.current?.setData(dataOf(latest.current));
  }, [x, series]);

  return (
    <div ref={ref} role="img" aria-label={label} className="chart">
      <div ref={place} style={{ minHeight: height }} />
    </div>
  );
}

function dataOf({ x, series }: ChartProps): uPlot.AlignedData {
  return [x, ...series.map(({ values }) => values)] as uPlot.AlignedData;
}

function variable(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function hue(tone: Series['tone']): string {
  if (tone === 'accent') return variable('--mantine-color-sluice-5');
  return variable(tone === 'neutral' ? '--text-faint' : `--${tone}`);
}

function options(latest: React.RefObject<ChartProps>, width: number, height: number): uPlot.Options {
  const { series, sync, elapsed, onBrush } = latest.current;
  const font = `11px ${variable('--mantine-font-family') || 'sans-serif'}`;
  const format = (value: number) => (latest.current.format ?? shortNumber)(value);
  const grid = { stroke: variable('--grid'), width: 1 };
  const axis = { stroke: variable('--text-faint'), font, grid, ticks: { show: false } };
  return {
    width,
    height,
    padding: [8, 20, 0, 0],
    tzDate: (seconds) => new Date(seconds * 1000),
    cursor: {
      sync: sync ? { key: sync } : undefined,
      drag: { x: !!onBrush, y: false, setScale: false },
      points: { size: 6 },
      y: false,
    },
    legend: {
      live: true,
      markers: { width: 0, fill: (_, index) => hue(series[index - 1]?.tone ?? 'neutral') },
    },
    scales: {
      x: { time: !elapsed, range: series.some(({ bars }) => bars) ? withLastBar : undefined },
      y: { range: (_, __, max) => [0, Math.max(latest.current.yMin ?? 0, (max ?? 0) * 1.06) || 1] },
    },
    axes: [
      {
        ...axis,
        grid: { show: false },
        size: 28,
        values: (_, ticks) =>
          elapsed
            ? ticks.map((t) => (t === 0 ? '0' : duration(t * 1000)))
            : ticks.map((t) => timeTick(t, ticks)),
      },
      { ...axis, size: 52, values: (_, ticks) => ticks.map(shortNumber) },
    ],
    series: [
      {
        label: 'at',
        value: elapsed ? (_, at) => (at === null ? '–' : duration(at * 1000)) : '{D} {MMM} {HH}:{mm}:{ss}',
      },
      ...series.map((one) => look(one, format)),
    ],
    hooks: {
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

/** A bar begins at its x: the last one needs as much room as the others. */
function withLastBar(plot: uPlot, min: number, max: number): uPlot.Range.MinMax {
  const [first = 0, second = first] = plot.data[0];
  return [min, max + (second - first)];
}

/** "14:05"; the day where one begins; with seconds where ticks are closer than a minute. */
function timeTick(seconds: number, ticks: number[]): string {
  const at = new Date(seconds * 1000);
  const midnight = at.getHours() === 0 && at.getMinutes() === 0 && at.getSeconds() === 0;
  if (midnight) return dayTick.format(at);
  return ((ticks[1] ?? seconds + 60) - (ticks[0] ?? seconds) < 60 ? secondTick : minuteTick).format(at);
}

const dayTick = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short' });
const minuteTick = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit' });
const secondTick = new Intl.DateTimeFormat('en-GB', {
  hour: '2-digit',
  minute: '2-digit',
  second: '2-digit',
});

function look(series: Series, format: (value: number) => string): uPlot.Series {
  const colour = hue(series.tone);
  const value = (_: uPlot, at: number | null) => (at === null || at === undefined ? '–' : format(at));
  if (series.points) {
    const draw = series.points === 'dot' ? dots(colour) : crosses(colour);
    return { label: series.label, stroke: colour, value, paths: () => null, points: { show: draw } };
  }
  return {
    label: series.label,
    stroke: colour,
    value,
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
