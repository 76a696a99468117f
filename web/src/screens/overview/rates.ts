import type { Series } from '~/api/types';

export interface Rates {
  /** When each step begins, in seconds. */
  x: number[];
  allowed: (number | null)[];
  denied: (number | null)[];
}

const tooShort = 10_000;

/**
 * Checks per minute of each step. The last step has not ended: it is divided by what of it has passed, so
 * that the line does not fall at its end, and left out while that is too little to say anything.
 */
export function perMinute({ points, step_seconds }: Series, now: number): Rates {
  const minutes = points.map(({ at }) => {
    const passed = Math.min(step_seconds * 1000, now - Date.parse(at));
    return passed < tooShort ? null : passed / 60_000;
  });
  const rate = (count: number, index: number) => {
    const length = minutes[index];
    return length ? count / length : null;
  };
  return {
    x: points.map(({ at }) => Date.parse(at) / 1000),
    allowed: points.map(({ allowed, bypassed }, index) => rate(allowed + bypassed, index)),
    denied: points.map(({ denied }, index) => rate(denied, index)),
  };
}
