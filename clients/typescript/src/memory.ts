import type { Decision } from './types.js';
import type { Question } from './wire.js';

/** Caps the memory of denials, because callers can make up identities. */
const maxDenials = 10_000;
/** How long a denial is remembered for which no wait helps, such as that of a block rule. */
const withoutWait = 1000;

export interface Denial {
  decision: Decision;
  cost: number;
  at: number;
  until: number;
}

/** A denial. The time since the answer is subtracted from its waits. */
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

/** Remembers denials by the identity of their checks. A check that costs less may pass, so it is asked. */
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

  /** An earlier denial that still holds, with what is left of its waits. */
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

  /** Keeps a denial. Those that may end at any moment, such as a slot that is freed, are not kept. */
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
      // The oldest goes: a Map keeps the order in which keys were set.
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
