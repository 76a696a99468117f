import { onAbort } from './abort.js';
import type { Breaker } from './breaker.js';
import { type Denial, decided, type Memory } from './memory.js';
import { longest, whenCalm } from './patience.js';
import { type Decision, SluiceError } from './types.js';
import { type Question, undecided } from './wire.js';

/** Two requests keep the server busy while an answer travels; further checks wait for a batch. */
const inFlight = 2;
/** Including requests that are added while others hang. */
const mostInFlight = 16;
/** A check that waits so long starts another request, because those in flight hang. */
const stallFraction = 1 / 4;
const maxBatch = 256;
/** Half of the server's bound, if all characters are of two bytes. */
const maxBatchCharacters = 256 << 10;
/** Bounds the waiting checks of an identity. */
const maxWaiting = 16_384;

/** Sends requests that end within so many milliseconds, by default the time-out. */
export interface Transport {
  one(question: Question, within?: number): Promise<Decision>;
  many(questions: Question[], within?: number): Promise<Decision[]>;
  /** Receives a decision whose caller has left. */
  unwanted(decision: Decision): void;
}

/** The unanswered checks of an identity. */
interface Group {
  identity: string;
  waiting: Set<Waiting>;
  inFlight: number;
  answered: number;
  /** The latest while others waited. */
  denial?: Denial;
}

/** A check that waits for a batch. */
interface Waiting {
  question: Question;
  group: Group;
  since: number;
  stalled: boolean;
  /** Waits on for an answer to the same check. */
  overdue: boolean;
  ended: boolean;
  resolve(decision: Decision): void;
  reject(error: unknown): void;
}

/**
 * Batches concurrent checks: those that wait when a request ends share the next one. Identities take turns, so that one
 * user's flood delays no other.
 */
export class Queue {
  readonly #transport: Transport;
  readonly #memory: Memory;
  readonly #breaker: Breaker;
  readonly #timeout: number;
  readonly #batch: boolean;
  readonly #groups = new Map<string, Group>();
  /** Groups with waiting checks, in turn. */
  readonly #turns = new Set<Group>();
  readonly #flights = new Set<Waiting[]>();
  /** Requests and releases that close waits for. */
  readonly #work = new Set<Promise<unknown>>();
  #waiting = 0;
  #inFlight = 0;
  #answered = Number.NEGATIVE_INFINITY;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #cancelEnd: (() => void) | null = null; // of the waits that are overdue
  #closed = false;

  constructor(transport: Transport, memory: Memory, breaker: Breaker, timeout: number, batch: boolean) {
    this.#transport = transport;
    this.#memory = memory;
    this.#breaker = breaker;
    this.#timeout = timeout;
    this.#batch = batch;
  }

  get waiting(): number {
    return this.#waiting;
  }

  /** Ends waiting checks, and waits for those in flight. */
  async close(): Promise<void> {
    this.#closed = true;
    const error = new SluiceError('connection', 'The client is closed.');
    for (const group of [...this.#turns]) {
      this.#endWhere(group, (waiting) => {
        waiting.reject(error);
        return true;
      });
      this.#forget(group);
    }
    while (this.#work.size > 0) await Promise.allSettled(this.#work);
  }

  /** Rejects with a SluiceError or the signal's reason. */
  async ask(question: Question, signal?: AbortSignal): Promise<Decision> {
    if (this.#closed) throw new SluiceError('connection', 'The client is closed.');
    this.#breaker.admit();
    const group = this.#group(question.identity);
    if (this.#batch && this.#inFlight >= inFlight) {
      return group.waiting.size < maxWaiting ? this.#wait(question, group, signal) : this.#tooMany();
    }
    const request = this.#alone(question, group);
    return signal ? this.#unlessLeft(request, signal) : request;
  }

  #group(identity: string): Group {
    let group = this.#groups.get(identity);
    if (!group) {
      group = { identity, waiting: new Set(), inFlight: 0, answered: Number.NEGATIVE_INFINITY };
      this.#groups.set(identity, group);
    }
    return group;
  }

  #forget(group: Group): void {
    if (group.waiting.size > 0) return;
    this.#turns.delete(group);
    if (group.inFlight === 0) this.#groups.delete(group.identity);
  }

  get #isHealthy(): boolean {
    return performance.now() - this.#answered < this.#timeout;
  }

  /** A healthy server would have denied a flood. */
  #tooMany(): Decision {
    const error = new SluiceError('unavailable', 'Too many of the same check wait already.');
    if (!this.#isHealthy) throw error;
    return { ...undecided(error), allowed: false, status: 429, reason: 'too_many_waiting', retryAfterMs: 1000 };
  }

  /** The request outlives its caller, because the answer says what the server took. */
  #unlessLeft(request: Promise<Decision>, signal: AbortSignal): Promise<Decision> {
    return new Promise((resolve, reject) => {
      const stay = onAbort(signal, () => reject(signal.reason));
      const told = request.then((decision) => {
        if (signal.aborted) this.#transport.unwanted(decision);
        resolve(decision);
      }, reject);
      this.#awaited(told.finally(stay));
    });
  }

  #awaited(work: Promise<unknown>): void {
    this.#work.add(work);
    const ended = () => this.#work.delete(work);
    work.then(ended, ended);
  }

  async #alone(question: Question, group: Group): Promise<Decision> {
    this.#inFlight++;
    group.inFlight++;
    let failure: unknown = null;
    let answer: Decision | null = null;
    try {
      answer = await this.#transport.one(question);
      this.#memory.learn(question, answer);
      return answer;
    } catch (error) {
      failure = error;
      throw error;
    } finally {
      this.#landed(question, group, answer);
      this.#ended(failure);
    }
  }

  #wait(question: Question, group: Group, signal?: AbortSignal): Promise<Decision> {
    return new Promise((resolve, reject) => {
      let left = false;
      const finish = () => {
        waiting.ended = true;
        stay();
      };
      const waiting: Waiting = {
        question,
        group,
        since: performance.now(),
        stalled: false,
        overdue: false,
        ended: false,
        resolve: (decision) => {
          if (left || waiting.ended) this.#transport.unwanted(decision);
          finish();
          resolve(decision);
        },
        reject: (error) => {
          finish();
          reject(error);
        },
      };
      /** Nothing must be taken for a caller that has left. */
      const stay = onAbort(signal, () => {
        left = true;
        if (group.waiting.delete(waiting)) this.#waiting--;
        this.#forget(group);
        waiting.reject(signal?.reason);
      });
      group.waiting.add(waiting);
      this.#turns.add(group);
      this.#waiting++;
      this.#watch();
    });
  }

  /** Sends another request for stalled checks, and ends overdue ones when the event loop is calm. */
  #watch(): void {
    if (this.#timer || this.#isIdle) return;
    const due = this.#cancelEnd ? Number.POSITIVE_INFINITY : this.#due(false) - performance.now();
    const wait = Math.max(1, Math.min(this.#timeout * stallFraction, due));
    const wake = performance.now() + wait;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      if (this.#hasStalled() && this.#inFlight < mostInFlight && !this.#breaker.isOpen) {
        this.#sendNext();
      }
      const at = performance.now();
      if (!this.#cancelEnd && this.#due(true) <= at) {
        this.#cancelEnd = whenCalm(wake, this.#timeout, () => {
          this.#endOverdue(at);
          this.#stopWatch();
          this.#watch();
        });
      }
      this.#watch();
    }, wait);
  }

  #stopWatch(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#cancelEnd?.();
    this.#cancelEnd = null;
  }

  get #isIdle(): boolean {
    return this.#waiting === 0 && this.#flights.size === 0;
  }

  /** When the first check is overdue, with or without those that wait on. */
  #due(withKept: boolean): number {
    let since = Number.POSITIVE_INFINITY;
    for (const group of this.#turns) {
      for (const waiting of group.waiting) {
        if (waiting.overdue && !withKept) continue;
        since = Math.min(since, waiting.since);
        break;
      }
    }
    for (const flight of this.#flights) {
      for (const waiting of flight) {
        if (!waiting.ended && (withKept || !waiting.overdue)) since = Math.min(since, waiting.since);
      }
    }
    return since + this.#timeout;
  }

  #hasStalled(): boolean {
    let found = false;
    const now = performance.now();
    for (const group of this.#turns) {
      for (const waiting of group.waiting) {
        if (waiting.stalled) continue;
        if (now - waiting.since < this.#timeout * stallFraction) break;
        waiting.stalled = found = true;
      }
    }
    return found;
  }

  /** Ends the overdue checks: by a denial that came meanwhile, or by a time-out. */
  #endOverdue(at: number): void {
    const timedOut = (waiting: Waiting) => {
      waiting.overdue = true;
      if (this.#waitsOn(waiting)) return false;
      waiting.reject(new SluiceError('timeout', 'No answer in time.'));
      return true;
    };
    for (const group of [...this.#turns]) {
      this.#endWhere(group, (waiting) => {
        if (at - waiting.since < this.#timeout) return false;
        const { denial } = group;
        if (!denial || denial.at <= waiting.since || waiting.question.cost < denial.cost) return timedOut(waiting);
        waiting.resolve(decided(denial, performance.now()));
        return true;
      });
      this.#forget(group);
    }
    for (const flight of this.#flights) {
      for (const waiting of flight) if (!waiting.ended && at - waiting.since >= this.#timeout) timedOut(waiting);
    }
  }

  /**
   * Whether an overdue check waits longer, because the failure mode would let a flood pass: the server answers, and the
   * same check is in flight or was just answered.
   */
  #waitsOn({ group, since }: Waiting): boolean {
    const now = performance.now();
    return (
      now - since < longest * this.#timeout &&
      this.#isHealthy &&
      (group.inFlight > 0 || now - group.answered < this.#timeout)
    );
  }

  /** Removes the checks that a function has ended. */
  #endWhere(group: Group, end: (waiting: Waiting) => boolean): void {
    for (const waiting of group.waiting) {
      if (!end(waiting)) continue;
      group.waiting.delete(waiting);
      this.#waiting--;
    }
  }

  /** A denial ends the waiting checks that it denies. */
  #landed(question: Question, group: Group, answer: Decision | null): void {
    group.inFlight--;
    if (answer) {
      group.answered = performance.now();
      if (!answer.allowed && question.cost > 0 && group.waiting.size > 0) {
        group.denial = { decision: { ...answer }, cost: question.cost, at: group.answered, until: 0 };
        this.#endWhere(group, (waiting) => {
          const recalled = this.#memory.recall(waiting.question);
          if (recalled) waiting.resolve(recalled);
          return recalled !== null;
        });
      }
    }
    this.#forget(group);
  }

  /** Counts a request, null being a good one, and sends the next batch. */
  #ended(failure: unknown): void {
    this.#inFlight--;
    if (this.#breaker.ended(failure)) this.#answered = performance.now();
    if (this.#inFlight < inFlight) this.#sendNext();
    if (this.#isIdle) this.#stopWatch(); // a timer would keep the process alive
  }

  /** Takes one check of each identity in turn. */
  #take(): Waiting[] {
    const batch: Waiting[] = [];
    let size = 0;
    for (const group of this.#turns) {
      const [first] = group.waiting;
      if (!first) continue;
      size += first.question.body.length;
      if (batch.length === maxBatch || (batch.length > 0 && size > maxBatchCharacters)) break;
      batch.push(first);
      group.waiting.delete(first);
      group.inFlight++;
      this.#waiting--;
      this.#turns.delete(group);
      if (group.waiting.size > 0) this.#turns.add(group); // the loop comes to it again
    }
    return batch;
  }

  #sendNext(): void {
    const batch = this.#closed ? [] : this.#take();
    if (batch.length === 0) return;
    this.#inFlight++;
    this.#flights.add(batch);
    this.#awaited(
      this.#send(batch).then((failure) => {
        this.#flights.delete(batch);
        this.#ended(failure);
      }),
    );
  }

  /** Sends a batch, and returns why it failed. No caller's signal ends the shared request. */
  async #send(batch: Waiting[], within = this.#timeout): Promise<unknown> {
    const began = performance.now();
    try {
      const [first] = batch;
      const decisions =
        batch.length === 1 && first
          ? [await this.#transport.one(first.question, within)]
          : await this.#transport.many(
              batch.map(({ question }) => question),
              within,
            );
      batch.forEach(({ question }, i) => {
        this.#memory.learn(question, decisions[i] as Decision);
      });
      batch.forEach((waiting, i) => {
        waiting.resolve(decisions[i] as Decision);
        this.#landed(waiting.question, waiting.group, decisions[i] as Decision);
      });
      return null;
    } catch (error) {
      let rest = batch;
      let reason = error;
      if (batch.length > 1 && error instanceof SluiceError && error.kind === 'request') {
        // Nothing was taken, so the valid checks are sent again.
        const others = tell(batch, error);
        if (others.length < batch.length) rest = others.filter(({ ended }) => !ended);
        for (const waiting of batch) {
          if (!rest.includes(waiting)) this.#landed(waiting.question, waiting.group, null);
        }
        if (rest.length === 0) return null;
        const left = within - (performance.now() - began);
        if (rest.length < batch.length) {
          if (left > 0) return this.#send(rest, left);
          reason = new SluiceError('timeout', 'No answer in time.');
        }
      }
      for (const waiting of rest) {
        waiting.reject(reason);
        this.#landed(waiting.question, waiting.group, null);
      }
      return error;
    }
  }
}

/** Ends the checks that a 400 names, and returns the others. */
function tell(batch: Waiting[], error: SluiceError): Waiting[] {
  return batch.filter((waiting, i) => {
    const prefix = `/checks/${i}/`;
    const fields = error.fields
      .filter(({ pointer }) => `${pointer}/`.startsWith(prefix))
      .map(({ pointer, detail }) => ({ pointer: pointer.slice(prefix.length - 1), detail }));
    if (fields.length === 0) return true;
    const { status, type, requestId } = error;
    waiting.reject(new SluiceError('request', 'The check is not valid.', { status, type, requestId, fields }));
    return false;
  });
}
