import type { Decision } from './types.js';
import type { Question } from './wire.js';

/** Bounds the cache, because callers can invent identities. */
const maxDenials = 10_000;
/** The life of a denial that no wait ends, such as by a block rule. */
const withoutWait = 1000;

export interface Denial {
  decision: Decision;
  cost: number;
  at: number;
  until: number;
}

/** The denial with its remaining waits. */
export function decided({ decision, at }: Denial, now: number): Decision {
  const { retryAfterMs, resetAfterMs } = decision;
  const passed = now - at;
  return {
    ...decision,
    tiers: decision.tiers.map((tier) => ({
      ...tier,
      retryAfterMs: tier.retryAfterMs && Math.max(1, Math.ceil(tier.retryAfterMs - passed)),
      resetAfterMs: tier.resetAfterMs && Math.max(0, Math.ceil(tier.resetAfterMs - passed)),
      moreAfterMs: tier.moreAfterMs && Math.max(0, Math.ceil(tier.moreAfterMs - passed)),
    })),
    source: 'memory',
    retryAfterMs: retryAfterMs === null ? null : Math.max(1, Math.ceil(retryAfterMs - passed)),
    resetAfterMs: resetAfterMs === null ? null : Math.max(0, Math.ceil(resetAfterMs - passed)),
  };
}

/** Caches denials by identity. A check of lower cost may pass, so the server is asked. */
export class Memory {
  readonly #denials = new Map<string, Denial>();
  readonly #longest: number;
  now: () => number = () => performance.now();

  constructor(longest: number) {
    this.#longest = longest;
  }

  get size(): number {
    return this.#denials.size;
  }

  recall({ identity, cost }: Question): Decision | null {
    const denial = this.#denials.get(identity);
    if (!denial || cost <= 0) return null;
    const now = this.now();
    if (now >= denial.until) {
      this.#denials.delete(identity);
      return null;
    }
    if (cost < denial.cost) return null;
    return decided(denial, now);
  }

  /** Caches a denial, unless it may end at any moment, as by a concurrency limit. */
  learn({ identity, cost }: Question, decision: Decision): void {
    const { status, reason, degraded, retryAfterMs } = decision;
    if (this.#longest <= 0 || cost <= 0 || status !== 429 || degraded) return;
    const wait =
      reason === 'limit_exceeded'
        ? (retryAfterMs ?? 0)
        : reason === 'blocked' || reason === 'cost_exceeds_limit'
          ? withoutWait
          : 0;
    if (wait <= 0) return;
    if (this.#denials.size >= maxDenials) {
      // The first key is the oldest.
      for (const oldest of this.#denials.keys()) {
        this.#denials.delete(oldest);
        break;
      }
    }
    const at = this.now();
    this.#denials.delete(identity);
    this.#denials.set(identity, { decision: { ...decision }, cost, at, until: at + Math.min(wait, this.#longest) });
  }
}
