import type { Sluice } from './client.js';
import type { Check } from './types.js';
import { retryMs } from './wire.js';

/** The part of express-rate-limit's options that the store looks at. */
interface RateLimitOptions {
  limit?: unknown;
  skipFailedRequests?: boolean;
  skipSuccessfulRequests?: boolean;
}

/**
 * A store for express-rate-limit, for services that have it already: Sluice decides, and express-rate-limit answers.
 * Its `limit` says nothing but what its headers show: set it to the burst of your rule. A function as `limit` is not
 * asked here, so they show one hit. New services need less with the middleware of `@sluicegate/client/express`, which
 * also waits for leaky buckets and releases slots.
 */
export class SluiceStore {
  /** Says that counts are shared with other processes. */
  readonly localKeys = false;
  readonly #limits: Sluice;
  readonly #check: (key: string) => Check;
  /** Of express-rate-limit, which denies what is above it; the rule that decides may have a larger one. */
  #limit = 1;

  /** `check` says what to ask for a key; by default the key is the user. */
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

  /** Asks Sluice. A denial is a count above every limit. */
  async increment(key: string): Promise<{ totalHits: number; resetTime: Date | undefined }> {
    const decision = await this.#limits.check(this.#check(key));
    const { allowed, limit, remaining, resetAfterMs, reservation } = decision;
    // express-rate-limit does not say when a request ends, so a slot cannot be held for it.
    if (reservation) void this.#limits.release(reservation).catch(() => undefined);
    const hits = Math.max(1, Math.min((limit ?? 1) - (remaining ?? 0), this.#limit));
    const wait = allowed ? resetAfterMs : retryMs(decision);
    return {
      totalHits: allowed ? hits : Number.MAX_SAFE_INTEGER,
      resetTime: wait === null ? undefined : new Date(Date.now() + wait),
    };
  }

  /** Nothing: init refuses the options that would need it. */
  decrement(): void {}

  resetKey(): void {
    throw new Error('sluice: reset a bucket on the page of its user, or with the admin API');
  }
}
