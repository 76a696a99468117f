import { duration } from './format';

const units = { s: 1, m: 60, h: 3600 } as const;

const maxWindow = 366 * 86_400;
export const maxHold = 86_400;

const day = 86_400;

export function parseDuration(text: string): { seconds: number } | { error: string } {
  const found = /^([1-9]\d{0,8})([smh])$/.exec(text);
  const seconds = found ? Number(found[1]) * units[found[2] as keyof typeof units] : 0;
  if (seconds > 0 && seconds <= maxWindow) return { seconds };
  return { error: `must be a duration such as 30s, 5m or 24h, at most 8784h, got ${JSON.stringify(text)}` };
}

export const calendarUnits = ['day', 'week', 'month'] as const;
type CalendarUnit = (typeof calendarUnits)[number];

export function isCalendar(text: string | null | undefined): text is CalendarUnit {
  return calendarUnits.some((unit) => unit === text);
}

export function parseWindow(text: string): { seconds: number } | { calendar: CalendarUnit } | { error: string } {
  if (isCalendar(text)) return { calendar: text };
  const length = parseDuration(text);
  if ('seconds' in length) return length;
  return {
    error: `must be day, week, month or a duration such as 30s, 5m or 24h, got ${JSON.stringify(text)}`,
  };
}

export function windowSeconds(text: string): number {
  if (isCalendar(text)) return { day, week: 7 * day, month: 31 * day }[text];
  const read = parseDuration(text);
  return 'seconds' in read ? read.seconds : 0;
}

export function describeDuration(text: string): string {
  const read = parseDuration(text);
  return 'error' in read ? text : duration(read.seconds * 1000, true);
}

export interface WindowParts {
  window?: string | null;
  window_zone?: string | null;
  window_start_day?: number | null;
}

export const weekdays = ['Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday', 'Sunday'];

const whole: Record<number, string> = { 1: 'second', 60: 'minute', 3600: 'hour', [day]: 'day' };

/** Follows "per" and "in any": "minute", "90 s", "month from the 15th, Europe/Berlin". */
export function describeWindow({ window, window_zone, window_start_day }: WindowParts): string {
  if (!isCalendar(window)) {
    return whole[windowSeconds(window ?? '')] ?? describeDuration(window ?? '');
  }
  const start = window_start_day ?? 1;
  const from = { day: '', week: ` from ${weekdays[start - 1]}`, month: ` from the ${ordinal(start)}` }[window];
  return `${window}${start > 1 ? from : ''}${window_zone ? `, ${window_zone}` : ''}`;
}

export function ordinal(n: number): string {
  const ending = Math.floor(n / 10) === 1 ? undefined : ['st', 'nd', 'rd'][(n % 10) - 1];
  return `${n}${ending ?? 'th'}`;
}
