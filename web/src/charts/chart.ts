import type { Tone } from '~/components/Outcome';

export interface Series {
  label: string;
  tone: Tone | 'accent';
  values: (number | null)[];
  fill?: boolean;
  /** Values that hold until the next one, such as a limit. */
  stepped?: boolean;
  dashed?: boolean;
  bars?: boolean;
  /** Points without a line, each with a shape: a hue alone is not enough. */
  points?: 'dot' | 'cross';
}

export interface ChartProps {
  label: string;
  /** Seconds since the epoch, or since the beginning if elapsed is set; ascending. */
  x: number[];
  series: Series[];
  height?: number;
  elapsed?: boolean;
  format?: (value: number) => string;
  /** Charts of one page with the same name share their crosshair. */
  sync?: string;
  /** In x's seconds. */
  onBrush?: (from: number, to: number) => void;
  /** Where the y axis ends at least. */
  yMin?: number;
  /** The last values are of a step that has not ended. */
  unfinished?: boolean;
}
