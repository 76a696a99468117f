import type { Algorithm } from './rate';

/**
 * What each algorithm does to the same traffic, for illustration. Decisions are the server's; here a second is a
 * unit without a name, and every limit is five requests.
 */
export interface Outcome {
  at: number;
  allowed: boolean;
  /** When it goes on; later than `at` for a request that waits in a queue. */
  goesAt: number;
  /** When it ends, for requests that hold a place. */
  endsAt: number;
}

/** How long the picture is. */
export const span = 30;
/** Where the windows of a fixed window begin. */
export const windowLength = 5;
const limit = 5;
/** How long a request takes. */
const busy = 2;

/** When requests arrive: a burst, a trickle, a burst around the boundary at 15, a pause, a steady stream. */
export const arrivals: readonly number[] = [
  ...evenly(7, 1, 0.15),
  ...evenly(4, 4, 1),
  ...evenly(5, 13.6, 0.25),
  ...evenly(5, 15.2, 0.25),
  ...evenly(14, 22, 0.55),
];

function evenly(count: number, from: number, apart: number): number[] {
  return Array.from({ length: count }, (_, index) => Math.round((from + index * apart) * 1000) / 1000);
}

/** Decides about one request, and remembers it if it is allowed. Returns how long it waits, or null if it is denied. */
type Decide = (at: number) => number | null;

const deciders: Record<Algorithm, (inSteps: boolean) => Decide> = {
  token_bucket: (inSteps) => {
    let tokens = limit;
    let stamp = 0;
    return (at) => {
      const earns = (time: number) => (inSteps ? Math.floor(time / windowLength) * windowLength : time);
      tokens = Math.min(limit, tokens + earns(at) - earns(stamp));
      stamp = at;
      if (tokens < 1) return null;
      tokens -= 1;
      return 0;
    };
  },
  leaky_bucket: () => {
    let free = 0; // when the queue is empty
    return (at) => {
      const wait = Math.max(0, free - at);
      if (wait > limit - 1) return null;
      free = at + wait + 1;
      return wait;
    };
  },
  fixed_window: () => {
    let window = -1;
    let used = 0;
    return (at) => {
      if (Math.floor(at / windowLength) !== window) [window, used] = [Math.floor(at / windowLength), 0];
      if (used >= limit) return null;
      used += 1;
      return 0;
    };
  },
  sliding_window: () => {
    const used = new Map<number, number>();
    return (at) => {
      const window = Math.floor(at / windowLength);
      const covered = 1 - (at / windowLength - window);
      const estimate = (used.get(window) ?? 0) + (used.get(window - 1) ?? 0) * covered;
      if (estimate + 1 > limit) return null;
      used.set(window, (used.get(window) ?? 0) + 1);
      return 0;
    };
  },
  sliding_window_log: () => {
    const log: number[] = [];
    return (at) => {
      if (log.filter((one) => one > at - windowLength).length >= limit) return null;
      log.push(at);
      return 0;
    };
  },
  concurrency: () => {
    const held: number[] = [];
    return (at) => {
      if (held.filter((one) => one + busy > at).length >= limit) return null;
      held.push(at);
      return 0;
    };
  },
};

/** What becomes of the traffic. A token bucket may refill in steps. */
export function pictureOf(algorithm: Algorithm, inSteps = false): Outcome[] {
  const decide = deciders[algorithm](inSteps);
  return arrivals.map((at) => {
    const wait = decide(at);
    const goesAt = at + (wait ?? 0);
    return {
      at,
      allowed: wait !== null,
      goesAt,
      endsAt: algorithm === 'concurrency' && wait !== null ? goesAt + busy : goesAt,
    };
  });
}

/** "35 requests: 20 allowed, 15 denied" */
export function pictureInWords(outcomes: Outcome[]): string {
  const allowed = outcomes.filter((one) => one.allowed);
  const waited = allowed.filter((one) => one.goesAt > one.at).length;
  return (
    `${outcomes.length} requests: ${allowed.length} allowed` +
    `${waited > 0 ? ` (${waited} after a wait)` : ''}, ${outcomes.length - allowed.length} denied`
  );
}
