import type { Rule } from '~/api/types';
import { shortNumber } from './format';
import { isMoney, meterUnit } from './meter';
import {
  describeDuration,
  describeWindow,
  isCalendar,
  maxHold,
  parseDuration,
  parseWindow,
  type WindowParts,
  windowSeconds,
} from './window';

/**
 * Rates are computed in the unit that somebody typed, where they are short decimals: 10/60 per second is rounded
 * already.
 */
export const units = ['second', 'minute', 'hour', 'day'] as const;
export type RateUnit = (typeof units)[number];

export interface Rate {
  rate_per_second: number;
  rate_unit: RateUnit;
}

/** Without an algorithm it is a rate and a burst, or an override's burst. */
export interface Limit extends Rate, WindowParts {
  burst_capacity: number;
  algorithm?: Algorithm;
  refill_interval?: string | null;
  max_hold?: string | null;
  meter?: string;
}

export type Algorithm = Rule['algorithm'];

export function hasRate(algorithm: Algorithm | undefined): boolean {
  return algorithm === undefined || algorithm === 'token_bucket' || algorithm === 'leaky_bucket';
}

export function hasWindow(algorithm: Algorithm | undefined): boolean {
  return algorithm === 'fixed_window' || algorithm === 'sliding_window' || algorithm === 'sliding_window_log';
}

/** The ranges that the server accepts (internal/rules). */
const bounds = {
  minRate: 1e-6,
  maxRate: 1e9,
  maxBurst: 1e9,
  maxListed: 1000,
  maxSecondsToFull: 365 * 86400,
};

const seconds: Record<RateUnit, number> = { second: 1, minute: 60, hour: 3600, day: 86400 };

export function perSecond(perUnit: number, unit: RateUnit): number {
  return perUnit / seconds[unit];
}

/** A double keeps 15 significant digits of any number. */
function rounded(number: number): number {
  return Number(number.toPrecision(15));
}

/** The shortest number per the typed unit that gives the rate, up to the last bit of a double. */
export function perUnit(rate: Rate): { number: number; unit: RateUnit } {
  const { rate_per_second, rate_unit } = rate;
  const scaled = rate_per_second * seconds[rate_unit];
  const lastBits = 2 * Number.EPSILON * rate_per_second;
  for (let digits = 1; digits <= 15; digits++) {
    const number = Number(scaled.toPrecision(digits));
    if (Math.abs(number / seconds[rate_unit] - rate_per_second) <= lastBits) return { number, unit: rate_unit };
  }
  return { number: rounded(scaled), unit: rate_unit };
}

export function times(limit: Limit, factor: number): Limit {
  const { number, unit } = perUnit(limit);
  return {
    ...shapeOf(limit),
    rate_per_second: perSecond(rounded(number * factor), unit),
    rate_unit: limit.rate_unit,
    burst_capacity: Math.max(1, Math.round(limit.burst_capacity * factor)),
  };
}

export function sameLimit(a: Limit, b: Limit): boolean {
  return (
    a.rate_per_second === b.rate_per_second && a.rate_unit === b.rate_unit && a.burst_capacity === b.burst_capacity
  );
}

type Shape = Exclude<keyof Limit, keyof Rate | 'burst_capacity' | 'meter'>;

const shape = {
  algorithm: true,
  window: true,
  window_zone: true,
  window_start_day: true,
  refill_interval: true,
  max_hold: true,
} satisfies Record<Shape, true>;

export function shapeOf(limit: Limit): Pick<Limit, Shape> {
  return Object.fromEntries((Object.keys(shape) as Shape[]).map((field) => [field, limit[field]]));
}

export function unitOf(rate_per_second: number): RateUnit {
  return units.find((unit) => Number.isInteger(perUnit({ rate_per_second, rate_unit: unit }).number)) ?? 'second';
}

const short: Record<RateUnit, string> = { second: 's', minute: 'min', hour: 'h', day: 'd' };

export const exact = new Intl.NumberFormat('en', { maximumFractionDigits: 12 });

export function rateSentence(rate: Rate & Pick<Limit, 'meter'>): string {
  const { number, unit } = perUnit(rate);
  return `${amount(number, rate.meter)} per ${unit}`;
}

function amount(number: number, meter: string | undefined): string {
  return `${exact.format(number)} ${meterUnit(meter)}`.trimEnd();
}

/** As the server says it: "10 per second, bursts to 50", "10,000 per month from the 15th, Europe/Berlin". */
export function limitSentence(limit: Limit): string {
  const burst = exact.format(limit.burst_capacity);
  const whole = amount(limit.burst_capacity, limit.meter);
  switch (limit.algorithm) {
    case 'leaky_bucket':
      return `${rateSentence(limit)} through a queue of ${burst}`;
    case 'fixed_window':
      return `${whole} per ${describeWindow(limit)}`;
    case 'sliding_window':
      return `about ${whole} in any ${describeWindow(limit)}`;
    case 'sliding_window_log':
      return `${whole} in any ${describeWindow(limit)}`;
    case 'concurrency':
      return `${burst} at once, held at most ${describeDuration(limit.max_hold ?? '')}`;
  }
  if (limit.rate_per_second === 0) return `burst ${burst}`;
  return `${stepsOf(limit) ?? rateSentence(limit)}, bursts to ${burst}`;
}

/** "5 every 10 s"; null if tokens come continuously. */
function stepsOf(limit: Limit): string | null {
  if (!limit.refill_interval) return null;
  const every = describeDuration(limit.refill_interval);
  const step = limit.rate_per_second * windowSeconds(limit.refill_interval);
  const tokens = Math.round(step);
  if (tokens >= 1 && Math.abs(step - tokens) < 1e-9 * tokens) return `${amount(tokens, limit.meter)} every ${every}`;
  return `${rateSentence(limit)} in steps of ${every}`;
}

/** "10/s", "100/month", "1.2 M/month", "100 USD/month", "20 at once" */
export function limitShort(limit: Limit): string {
  const burst = shortAmount(limit.burst_capacity, limit.meter);
  if (limit.algorithm === 'concurrency') return `${burst} at once`;
  if (!hasWindow(limit.algorithm)) {
    if (limit.rate_per_second === 0) return `burst ${burst}`;
    const { number, unit } = perUnit(limit);
    return `${shortAmount(number, limit.meter)}/${short[unit]}`;
  }
  const window = isCalendar(limit.window) ? limit.window : describeWindow(limit);
  return `${burst}/${short[window as RateUnit] ?? window}`;
}

/** Exact for requests, short for others, money with its currency. */
export function shortAmount(value: number, meter: string | undefined): string {
  const unit = meterUnit(meter);
  if (!unit) return exact.format(value);
  const text = shortNumber(value).replace(/\.0(?=\D)/, '');
  return isMoney(meter) ? `${text} ${unit}` : text;
}

export function rateShort(rate: Rate): string {
  const { number, unit } = perUnit(rate);
  return `${exact.format(number)}/${short[unit]}`;
}

/** Reads 1000, 1,000, 0.5 and, with a decimal comma, 0,5. NaN for ambiguous texts, such as 1.000,5. */
export function parseNumber(text: string): number {
  const plain = text.trim();
  if (/^[1-9]\d{0,2}([,_ \u00a0\u202f])\d{3}(?:\1\d{3})*(?:\.\d+)?$/.test(plain)) {
    return Number(plain.replace(/[,_ \u00a0\u202f]/g, ''));
  }
  if (/^(?:\d+(?:[.,]\d+)?|[.,]\d+)$/.test(plain)) return Number(plain.replace(',', '.'));
  return Number.NaN;
}

/** Reads "1000/day", "10 per second", "5/min", "600 / m" or a bare number, which keeps the unit. */
export function parseRate(text: string, fallback: RateUnit): Rate | null {
  const found = /^([^/a-z]+?)\s*(?:(?:\/|per\s)\s*([a-z]+))?$/i.exec(text.trim());
  if (!found?.[1]) return null;
  const unit = found[2] ? unitNamed(found[2].toLowerCase()) : fallback;
  const number = parseNumber(found[1]);
  if (!unit || Number.isNaN(number)) return null;
  return { rate_per_second: perSecond(number, unit), rate_unit: unit };
}

/** A second's tokens, and at least 5 if an hour brings that many: with 1, "6/min" would deny two requests at once. */
export function likelyBurst({ rate_per_second: rate }: Rate): number {
  return Math.max(1, Math.ceil(rate), Math.min(5, Math.round(rate * 3600)));
}

export const notARate = 'must be a number per second, minute, hour or day, such as 10/s, 0.5/min or 1000/day';

function unitNamed(name: string): RateUnit | undefined {
  return units.find((unit) => unit.startsWith(name) || short[unit] === name || `${unit}s` === name);
}

export interface LimitProblems {
  rate?: string;
  burst?: string;
  window?: string;
  refill_interval?: string;
  max_hold?: string;
  notify_at?: string;
}

type Checked = Limit & Partial<Pick<Rule, 'notify_at'>>;

export function limitProblems(limit: Checked): LimitProblems {
  const problems: LimitProblems = {};
  const { rate_per_second: rate, burst_capacity: burst, algorithm } = limit;
  const isListed = algorithm === 'sliding_window_log' || algorithm === 'concurrency';
  const most = isListed ? bounds.maxListed : bounds.maxBurst;
  if (!Number.isInteger(burst) || burst < 1 || burst > most) {
    problems.burst = `must be a whole number from 1 to ${exact.format(most)}`;
  }
  if (limit.notify_at?.some((share) => !Number.isInteger(share) || share < 1 || share > 100)) {
    problems.notify_at = 'must be whole numbers from 1 to 100, such as 80, 100';
  }
  if (hasWindow(algorithm)) {
    const read = parseWindow(limit.window ?? '');
    if ('error' in read) problems.window = read.error;
  } else if (algorithm === 'concurrency') {
    const read = parseDuration(limit.max_hold ?? '');
    if ('error' in read) problems.max_hold = read.error;
    else if (read.seconds > maxHold) problems.max_hold = 'must be at most 24h';
  } else {
    const read = limit.refill_interval ? parseDuration(limit.refill_interval) : null;
    if (read && 'error' in read) problems.refill_interval = read.error;
    if (Number.isNaN(rate)) {
      problems.rate = notARate;
    } else if (!(rate >= bounds.minRate && rate <= bounds.maxRate)) {
      problems.rate = 'must be from 0.000001 to 1,000,000,000 per second';
    } else if (!problems.burst && burst / rate > bounds.maxSecondsToFull) {
      const fills = exact.format(Math.floor(rate * bounds.maxSecondsToFull));
      problems.burst = `must be at most ${fills} at this rate, so that a bucket fills within a year`;
    }
  }
  return problems;
}

export function isValid(limit: Checked): boolean {
  return Object.keys(limitProblems(limit)).length === 0;
}

/** Milliseconds until nothing of the past counts any more. */
export function timeToFull(limit: Limit): number {
  if (hasWindow(limit.algorithm)) return windowSeconds(limit.window ?? '') * 1000;
  if (limit.algorithm === 'concurrency') return windowSeconds(limit.max_hold ?? '') * 1000;
  return (limit.burst_capacity / limit.rate_per_second) * 1000;
}
