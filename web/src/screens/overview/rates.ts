import type { Series } from '~/api/types';
import { perMinuteText, plainTime, rateText, zoneOf } from '~/domain/format';

interface Rates {
  x: number[];
  allowed: number[];
  denied: number[];
  unfinished: boolean;
}

const minute = 60_000;

/** A step is drawn after so many milliseconds: the rate of fewer is chance, and checks are counted a second late. */
const least = 15_000;

/**
 * Checks per minute of each step. An unfinished step is divided by its elapsed time, so that a new minute is no fall;
 * one that has hardly begun is left out.
 */
export function perMinute({ points: all, step_seconds }: Series, now: number): Rates {
  const step = step_seconds * 1000;
  const rate = (count: number, at: string) => (count * minute) / Math.max(least, Math.min(step, now - Date.parse(at)));
  const newest = all.at(-1);
  const hasBegun = newest !== undefined && now - Date.parse(newest.at) >= Math.min(least, step);
  const points = hasBegun || all.length < 2 ? all : all.slice(0, -1);
  const last = points.at(-1);
  return {
    x: points.map(({ at }) => Date.parse(at) / 1000),
    allowed: points.map(({ at, allowed, bypassed }) => rate(allowed + bypassed, at)),
    denied: points.map(({ at, denied }) => rate(denied, at)),
    unfinished: last !== undefined && now < Date.parse(last.at) + step,
  };
}

/**
 * The average rate of a range, since the first checks if they came later: time before them, as of a new tenant, would
 * lower it.
 */
export function averageOf(checks: number, series: Series | undefined, from: number, until: number): string {
  if (checks === 0) return 'no checks in this time';
  const index = series?.points.findIndex(({ allowed, denied, bypassed }) => allowed + denied + bypassed > 0);
  const first = series && index !== undefined && index > 1 ? Date.parse(series.points[index]?.at ?? '') : from;
  const rate = perSecond(checks, Math.max(until - first, minute));
  return first > from ? `${rate} since ${plainTime(first, 'minute')} ${zoneOf(first)}` : `${rate} on average`;
}

function perSecond(count: number, ms: number): string {
  const rate = count / (ms / 1000);
  return rate < 1 ? perMinuteText(rate * 60) : `${rateText(rate)} per second`;
}
