import { useComputedColorScheme } from '@mantine/core';
import { useElementSize } from '@mantine/hooks';
import { useEffect, useId, useRef, useState } from 'react';
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import './chart.css';
import type { ChartProps } from './chart';
import { Legend } from './Legend';
import { dataOf, options } from './options';
import { atText, valuesText } from './reading';
import { useKeys } from './useKeys';

export default function ChartCanvas(props: ChartProps) {
  const { label, x, series, height = 180, sync, elapsed, onBrush } = props;
  const { ref, width } = useElementSize<HTMLDivElement>();
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const scheme = useComputedColorScheme('light');
  const latest = useRef(props);
  latest.current = props;
  const [cursor, setCursor] = useState<number | null>(null);
  const [read, setRead] = useState('');
  const help = useId();
  const keys = useKeys(plot, latest, (index, selecting) =>
    setRead(`${selecting ? 'Selected up to ' : ''}${atText(props, index)}: ${valuesText(props, index)}`),
  );

  // A new plot only for a new look; new values go into the one that is there.
  const makeUp = JSON.stringify([
    series.map(({ values: _, ...look }) => look),
    sync,
    elapsed,
    height,
    !!onBrush,
    !!props.unfinished,
  ]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: makeUp stands for all that the options are made of
  useEffect(() => {
    if (!place.current || width === 0) return;
    const made = new uPlot(options(latest, width, height, setCursor), dataOf(latest.current), place.current);
    plot.current = made;
    return () => {
      made.destroy();
      plot.current = null;
      setCursor(null);
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
    <div ref={ref}>
      <div
        ref={place}
        style={{ minHeight: height }}
        role="application" // the arrow keys are the chart's, not the screen reader's
        aria-roledescription="chart"
        aria-label={label}
        aria-describedby={help}
        // biome-ignore lint/a11y/noNoninteractiveTabindex: the keyboard reads values and selects a time
        tabIndex={0}
        {...keys}
      />
      <span id={help} hidden>
        The arrow keys read the values.
        {onBrush && ' Enter begins a selection, Enter again looks closer, Escape ends it.'}
      </span>
      <span className="aside" role="status">
        {read}
      </span>
      <Legend {...props} cursor={cursor} />
    </div>
  );
}
