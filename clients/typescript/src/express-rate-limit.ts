import type { Sluice } from './client.js';
import type { Check } from './types.js';
import { retryMs } from './wire.js';

interface RateLimitOptions {
  limit?: unknown;
  skipFailedRequests?: boolean;
  skipSuccessfulRequests?: boolean;
}

/**
 * A store for services that have express-rate-limit: Sluice decides, and express-rate-limit answers. Its `limit` is
 * only shown: set it to the burst of your rule. With a function as `limit`, headers show one hit. The middleware of
 * `@sluicegate/client/express` also waits for leaky buckets and releases slots.
 */
export class SluiceStore {
  /** Counts are shared with other processes. */
  readonly localKeys = false;
  readonly #limits: Sluice;
  readonly #check: (key: string) => Check;
  /** express-rate-limit denies above it, although the rule that decides may have a larger one. */
  #limit = 1;

  /** `check` returns the check of a key, by default with the key as user. */
  constructor(limits: Sluice, check: (key: string) => Check = (userId) => ({ userId })) {
    this.#limits = limits;
    this.#check = check;
  }

  init({ limit, skipFailedRequests, skipSuccessfulRequests }: RateLimitOptions): void {
    if (skipFailedRequests || skipSuccessfulRequests) {
      throw new TypeError(
        'sluice: a check cannot be taken back; leave skipFailedRequests and skipSuccessfulRequests out',
      );
    }
    if (typeof limit === 'number') this.#limit = limit;
  }

  /** A denial is a count above every limit. */
  async increment(key: string): Promise<{ totalHits: number; resetTime: Date | undefined }> {
    const decision = await this.#limits.check(this.#check(key));
    const { allowed, limit, remaining, resetAfterMs, reservation } = decision;
    // A slot cannot be held, because express-rate-limit does not say when a request ends.
    if (reservation) void this.#limits.release(reservation).catch(() => undefined);
    const hits = Math.max(1, Math.min((limit ?? 1) - (remaining ?? 0), this.#limit));
    const wait = allowed ? resetAfterMs : retryMs(decision);
    return {
      totalHits: allowed ? hits : Number.MAX_SAFE_INTEGER,
      resetTime: wait === null ? undefined : new Date(Date.now() + wait),
    };
  }

  /** Does nothing: init refuses the options that need it. */
  decrement(): void {}

  resetKey(): void {
    throw new Error('sluice: reset a bucket on the page of its user, or with the admin API');
  }
}
