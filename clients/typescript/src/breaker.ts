import { longest } from './patience.js';
import { SluiceError } from './types.js';

/** After so many failures in a row the failure mode decides at once, except for one probe after each pause. */
const failuresUntilProbing = 5;
const maxPause = 5000;

/** Bounds the cost of a failing server. Pauses between probes double from one time-out to ten, at most maxPause. */
export class Breaker {
  readonly #timeout: number;
  readonly #now: () => number;
  #failures = 0; // in a row
  #pause = 0;
  #next = 0; // when the next probe may start
  #probing = false;

  constructor(timeout: number, now: () => number) {
    this.#timeout = timeout;
    this.#now = now;
  }

  get isOpen(): boolean {
    return this.#failures >= failuresUntilProbing;
  }

  /** Throws unless a request may be sent, which is a probe if the breaker is open. */
  admit(): void {
    if (!this.isOpen) return;
    const now = this.#now();
    if (now < this.#next) {
      throw new SluiceError('connection', 'The last requests failed, and it is too early for another one.');
    }
    this.#probing = true;
    this.#next = now + this.#timeout;
  }

  /** Counts a request, null being a good one. Returns whether the server answered. */
  ended(failure: unknown): boolean {
    if (failure === null || (failure instanceof SluiceError && ['request', 'key'].includes(failure.kind))) {
      this.#failures = this.#pause = 0; // a refusal is an answer
      this.#probing = false;
      return true;
    }
    this.#failures++;
    if (this.#failures === failuresUntilProbing || this.#probing) {
      this.#pause = Math.min(Math.max(this.#timeout, 2 * this.#pause), longest * this.#timeout, maxPause);
      this.#probing = false;
      // The jitter keeps the processes of a service from probing together.
      this.#next = this.#now() + (this.#pause * (1 + Math.random())) / 2;
    }
    return false;
  }
}
