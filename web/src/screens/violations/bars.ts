import type { Violation } from '~/api/types';
import type { Moments } from '~/domain/range';

/** How many checks the violations stand for, per step of the time. */
export interface Bars {
  /** When each step begins, in seconds. */
  x: number[];
  counts: number[];
  stepSeconds: number;
}

const steps = [1, 5, 15, 60, 300, 900, 3600, 21600, 86400];
const atMost = 120;

/** Counts violations per step; what many filters match has no exact counts, so what was found is drawn. */
export function countBars(violations: Violation[], { from, until }: Moments): Bars {
  const stepSeconds = steps.find((step) => (until - from) / 1000 / step <= atMost) ?? 86400;
  const first = Math.floor(from / 1000 / stepSeconds) * stepSeconds;
  const length = Math.max(1, Math.ceil((until / 1000 - first) / stepSeconds));
  const counts = new Array<number>(length).fill(0);
  for (const { requested_at, count } of violations) {
    const index = Math.floor((Date.parse(requested_at) / 1000 - first) / stepSeconds);
    if (index >= 0 && index < length) counts[index] = (counts[index] ?? 0) + count;
  }
  return { x: counts.map((_, index) => first + index * stepSeconds), counts, stepSeconds };
}
