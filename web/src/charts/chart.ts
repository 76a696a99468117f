import type { Tone } from '~/components/Outcome';

/** One line of a chart, in the hue of its word in the legend. */
export interface Series {
  label: string;
  tone: Tone | 'accent';
  values: (number | null)[];
  fill?: boolean;
  /** Values that hold until the next one, such as a limit. */
  stepped?: boolean;
  dashed?: boolean;
  bars?: boolean;
  /** Events: points without a line, each with a shape, since a hue alone tells too little. */
  points?: 'dot' | 'cross';
}

export interface ChartProps {
  label: string;
  /** Seconds since the epoch, or since the beginning if elapsed is set; ascending. */
  x: number[];
  series: Series[];
  height?: number;
  /** x is time that passed ("3 s"), not a moment ("06:33"). */
  elapsed?: boolean;
  format?: (value: number) => string;
  /** Charts of one page with the same name share their crosshair. */
  sync?: string;
  /** Selecting a time range with the mouse, a finger or the keyboard, in x's seconds. */
  onBrush?: (from: number, to: number) => void;
  /** Where the y axis ends at least; it always begins at zero. */
  yMin?: number;
  /** The last values are of a step that has not ended: lines to them are dashed, and the legend says "so far". */
  unfinished?: boolean;
}
