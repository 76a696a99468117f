import { timeZone } from './zone';

const thin = '\u202f'; // narrow and unbroken
const plain = new Intl.NumberFormat('en', { maximumFractionDigits: 2 });
const steps = [
  { value: 1e9, suffix: 'G' },
  { value: 1e6, suffix: 'M' },
  { value: 1e3, suffix: 'k' },
];

export function shortNumber(value: number): string {
  if (Math.abs(value) < 10_000) return plain.format(value);
  for (const { value: step, suffix } of steps) {
    // 999,950 would round to 1000.0 k.
    if (Math.abs(value) >= step * 0.99995) {
      const scaled = value / step;
      return `${scaled.toFixed(Math.abs(scaled) < 99.95 ? 1 : 0)}${thin}${suffix}`;
    }
  }
  return plain.format(value);
}

export function rateText(rate: number): string {
  if (rate > 0 && rate < 0.1) return 'less than 0.1';
  return shortNumber(rate < 10 ? Math.round(rate * 10) / 10 : Math.round(rate));
}

export function perMinuteText(rate: number): string {
  return `${rateText(rate)} per minute`;
}

export function exactNumber(value: number): string {
  return new Intl.NumberFormat('en', { maximumFractionDigits: 6 }).format(value);
}

export function percent(share: number): string {
  const value = share * 100;
  if (value > 0 && value < 0.1) return `under 0.1${thin}%`;
  if (value > 99.9 && value < 100) return `over 99.9${thin}%`;
  const nearlyAll = value >= 99 && value < 100;
  const whole = value === 0 || (value >= 10 && !nearlyAll);
  return `${value.toFixed(whole ? 0 : 1)}${thin}%`;
}

const lengths = [
  { size: 86_400_000, one: 'day', many: 'days' },
  { size: 3_600_000, one: 'h', many: 'h' },
  { size: 60_000, one: 'min', many: 'min' },
  { size: 1000, one: 's', many: 's' },
];

/**
 * "350 ms", "1.5 s", "90 s", "2 min 30 s", "36 h". A unit is used from two of it, and for exactly one. Rounds to two
 * units, from ten of the larger to one; exact, as limits are, to the second. The server's durations are the same
 * (internal/rules/testdata/grammar.json).
 */
export function duration(ms: number, exact = false): string {
  if (!Number.isFinite(ms)) return 'for ever';
  if (ms < 0) return `−${duration(-ms, exact)}`;
  if (ms < 1000) return `${Math.round(ms)}${thin}ms`;
  if (ms < 59_950) return `${plain.format(Math.round(ms / 100) / 10)}${thin}s`;
  for (const [index, { size }] of lengths.entries()) {
    const next = lengths[index + 1]?.size ?? size;
    let rest = exact ? ms : Math.round(ms / next) * next;
    if (rest < 2 * size && rest !== size && next < size) continue;
    if (!exact && rest >= 10 * size) rest = Math.round(ms / size) * size;
    const words: string[] = [];
    for (const { size, one, many } of lengths.slice(index)) {
      const count = Math.floor(rest / size);
      rest -= count * size;
      if (count > 0) words.push(`${count}${thin}${count === 1 ? one : many}`);
    }
    return words.join(' ');
  }
  return '';
}

export function relative(at: number, now: number): string {
  const distance = at - now;
  if (Math.abs(distance) < 5_000) return 'just now';
  const text = duration(roundToLargest(Math.abs(distance)));
  return distance < 0 ? `${text} ago` : `in ${text}`;
}

function roundToLargest(ms: number): number {
  for (const { size } of lengths) {
    if (ms >= size) return Math.round(ms / size) * size;
  }
  return ms;
}

const day24 = { day: 'numeric', month: 'short' } as const;
const clock = { hour: '2-digit', minute: '2-digit' } as const;
const formats = {
  full: new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium', timeStyle: 'medium', timeZone }),
  second: new Intl.DateTimeFormat('en-GB', { ...day24, ...clock, second: '2-digit', timeZone }),
  minute: new Intl.DateTimeFormat('en-GB', { ...day24, ...clock, timeZone }),
  day: new Intl.DateTimeFormat('en-GB', { ...day24, year: 'numeric', timeZone }),
  clock: new Intl.DateTimeFormat('en-GB', { ...clock, second: '2-digit', timeZone }),
  clockMinute: new Intl.DateTimeFormat('en-GB', { ...clock, timeZone }),
  weekday: new Intl.DateTimeFormat('en-GB', { weekday: 'short', timeZone }),
};
const offset = new Intl.DateTimeFormat('en-GB', { timeZoneName: 'longOffset', timeZone });
const shortOffset = new Intl.DateTimeFormat('en-GB', { timeZoneName: 'shortOffset', timeZone });

/** "UTC", "UTC+1", "UTC+5:30" */
export function zoneOf(at: number, format = shortOffset): string {
  const part = format.formatToParts(at).find(({ type }) => type === 'timeZoneName');
  return (part?.value ?? 'UTC').replace('GMT', 'UTC').replace(/[+-]0?0(:00)?$/, '');
}

/** The zone must stand nearby: see zoneOf. */
export function plainTime(at: number, to: keyof typeof formats = 'full'): string {
  return formats[to].format(at);
}

/** "1 Dec 2026, 00:00 Europe/Berlin" */
export function zonedTime(at: number, zone: string): string {
  const seconds = at % 60_000 === 0 ? undefined : ('2-digit' as const);
  const options = { ...day24, year: 'numeric', ...clock, second: seconds } as const;
  try {
    return `${new Intl.DateTimeFormat('en-GB', { ...options, timeZone: zone }).format(at)} ${zone}`;
  } catch {
    return `${new Intl.DateTimeFormat('en-GB', { ...options, timeZone: 'UTC' }).format(at)} UTC`;
  }
}

export function exactTime(at: number): string {
  return `${plainTime(at)} ${zoneOf(at, offset)}`;
}

export function shortTime(at: number): string {
  return `${plainTime(at, 'minute')} ${zoneOf(at)}`;
}

export function clockTime(at: number): string {
  return `${plainTime(at, 'clock')} ${zoneOf(at)}`;
}

export function timeSpan(from: number, until: number, to: 'full' | 'minute' = 'full'): string {
  const withZone = to === 'full' ? exactTime : shortTime;
  const start = zoneOf(from) === zoneOf(until) ? plainTime(from, to) : withZone(from);
  return `${start} to ${withZone(until)}`;
}

function plainMoment(at: number): string {
  return `${plainTime(at, 'weekday')} ${plainTime(at, 'day')}, ${plainTime(at, at % 60_000 ? 'clock' : 'clockMinute')}`;
}

/** "Mon 23 Nov 2026, 09:00 UTC+1" */
export function moment(at: number): string {
  return `${plainMoment(at)} ${zoneOf(at)}`;
}

export function momentSpan(from: number, until: number): string {
  return `${zoneOf(from) === zoneOf(until) ? plainMoment(from) : moment(from)} to ${moment(until)}`;
}

export function ownZone(now: number): string {
  const { timeZone } = offset.resolvedOptions();
  const zone = zoneOf(now);
  return timeZone === zone ? zone : `${timeZone} (${zone})`;
}

export function plural(count: number, one: string, many = `${one}s`): string {
  return `${exactNumber(count)} ${count === 1 ? one : many}`;
}
