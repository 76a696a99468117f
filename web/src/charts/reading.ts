import { duration, plainTime, shortNumber, zoneOf } from '~/domain/format';
import type { ChartProps } from './chart';

export function atText({ x, elapsed, unfinished }: ChartProps, index: number): string {
  const at = x[index];
  if (at === undefined) return '–';
  if (elapsed) return duration(at * 1000);
  const step = x.length > 1 ? (x[1] as number) - (x[0] as number) : 60;
  const time = plainTime(at * 1000, step < 60 ? 'second' : step < 86_400 ? 'minute' : 'day');
  return `${time} ${zoneOf(at * 1000)}${unfinished && index === x.length - 1 ? ', so far' : ''}`;
}

export function valueText({ format }: ChartProps, value: number | null | undefined): string {
  return value === null || value === undefined ? '–' : (format ?? shortNumber)(value);
}

export function valuesText(props: ChartProps, index: number): string {
  return props.series.map(({ label, values }) => `${label} ${valueText(props, values[index])}`).join(', ');
}
