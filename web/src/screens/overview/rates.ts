import type { Series } from '~/api/types';

export interface Rates {
  /** When each step begins, in seconds. */
  x: number[];
  allowed: number[];
  denied: number[];
  /** The last step has not ended. */
  unfinished: boolean;
}

const minute = 60_000;

/**
 * Checks per minute of each step. An unfinished step is divided by its elapsed minutes, and by at least one:
 * seven checks in the first ten seconds count as seven, not as an estimate for the minute.
 */
export function perMinute({ points, step_seconds }: Series, now: number): Rates {
  const step = step_seconds * 1000;
  const rate = (count: number, at: string) =>
    (count * minute) / Math.max(minute, Math.min(step, now - Date.parse(at)));
  const last = points.at(-1);
  return {
    x: points.map(({ at }) => Date.parse(at) / 1000),
    allowed: points.map(({ at, allowed, bypassed }) => rate(allowed + bypassed, at)),
    denied: points.map(({ at, denied }) => rate(denied, at)),
    unfinished: last !== undefined && now < Date.parse(last.at) + step,
  };
}
