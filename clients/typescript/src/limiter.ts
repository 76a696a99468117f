import { onAbort } from './abort.js';

/** A local token bucket for requests to a limited service. The bucket begins full. */
export class Limiter {
  readonly #perToken: number; // milliseconds
  readonly #burst: number;
  /** When the bucket will be full, which is the whole state (GCRA). */
  #fullAt = 0;
  now: () => number = () => performance.now();

  /** Allows `perSecond` requests a second, and up to `burst` at once; refills continuously. */
  constructor(perSecond: number, burst: number) {
    if (!(perSecond > 0) || !Number.isFinite(perSecond) || !(burst >= 1) || !Number.isFinite(burst)) {
      throw new RangeError(
        `sluice: Limiter(${perSecond}, ${burst}): the rate must be above 0 and the burst at least 1`,
      );
    }
    this.#perToken = 1000 / perSecond;
    this.#burst = burst;
  }

  /** Available tokens, below 0 after reservations. */
  get tokens(): number {
    return this.#burst - Math.max(0, this.#fullAt - this.now()) / this.#perToken;
  }

  /** Takes n tokens if there are as many. */
  allow(n = 1): boolean {
    return this.#take(n, 0) !== null;
  }

  /**
   * Waits for n tokens and takes them, in order of the callers. Rejects, and takes nothing, if n is above the burst or
   * the signal aborts.
   */
  async wait(n = 1, options: { signal?: AbortSignal | undefined } = {}): Promise<void> {
    const { signal } = options;
    signal?.throwIfAborted();
    const delay = this.#take(n, Number.POSITIVE_INFINITY);
    if (delay === null) throw new RangeError(`sluice: ${n} tokens are asked for, and the bucket holds ${this.#burst}`);
    if (delay <= 0) return;
    try {
      await pause(delay, signal);
    } catch (error) {
      this.#fullAt -= n * this.#perToken;
      throw error;
    }
  }

  /** Takes n tokens ahead of time. Returns the milliseconds to wait before acting; null if n is above the burst. */
  reserve(n = 1): number | null {
    return this.#take(n, Number.POSITIVE_INFINITY);
  }

  /** Takes n tokens that are available within `longest` milliseconds, and returns the delay. */
  #take(n: number, longest: number): number | null {
    if (!(n >= 0) || n > this.#burst) return null;
    const now = this.now();
    const after = Math.max(this.#fullAt, now) + n * this.#perToken;
    const delay = Math.max(0, after - now - this.#burst * this.#perToken);
    // Sums of fractions may be off by a thousandth of a millisecond.
    if (delay > longest + 0.001) return null;
    this.#fullAt = after;
    return delay;
  }
}

/** A longer timer ends at once. */
export const longestTimer = 2 ** 31 - 1;

export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) {
      reject(signal.reason);
      return;
    }
    let timer: ReturnType<typeof setTimeout>;
    const wait = (left: number) => {
      timer = setTimeout(
        () => {
          if (left > longestTimer) return wait(left - longestTimer);
          stay();
          resolve();
        },
        Math.min(Math.ceil(left), longestTimer), // fractions are cut off
      );
    };
    wait(ms);
    const stay = onAbort(signal, () => {
      clearTimeout(timer);
      reject(signal?.reason);
    });
  });
}
