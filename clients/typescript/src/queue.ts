import { type Decision, SluiceError } from './types.js';
import type { Question } from './wire.js';

/**
 * How many requests are in flight before checks wait to share the next one. Two keep the server busy while one answer
 * travels.
 */
const inFlight = 2;
/** Caps the requests that are added while those in flight hang. */
const mostInFlight = 16;
/** A check that waits a quarter of the time-out starts another request: those in flight hang, and others may not. */
const stallFraction = 1 / 4;
/**
 * After how many failures in a row only one request at a time is risked, as a probe, and the failure mode decides the
 * other checks at once.
 */
const failuresUntilProbing = 5;
const maxBatch = 256;
/** Half of what the server takes, if all characters are of two bytes. */
const maxBatchCharacters = 256 << 10;

/** What sends the requests. */
export interface Transport {
  one(question: Question): Promise<Decision>;
  many(questions: Question[]): Promise<Decision[]>;
  /** Gets a decision whose caller left before it came. */
  unwanted(decision: Decision): void;
}

/** A check that waits for its share of a request. */
interface Waiting {
  question: Question;
  resolve(decision: Decision): void;
  reject(error: unknown): void;
}

/** Lets concurrent checks share requests: whatever waits when a request ends goes in one batch. */
export class Queue {
  readonly #transport: Transport;
  readonly #timeout: number;
  readonly #batch: boolean;
  #waiting: Waiting[] = [];
  #inFlight = 0;
  #failures = 0; // in a row
  closed = false;

  constructor(transport: Transport, timeout: number, batch: boolean) {
    this.#transport = transport;
    this.#timeout = timeout;
    this.#batch = batch;
  }

  get waiting(): number {
    return this.#waiting.length;
  }

  /** Settles within the time-out, or when the signal says so. It rejects with a SluiceError or the signal's reason. */
  async ask(question: Question, signal?: AbortSignal): Promise<Decision> {
    if (this.closed) throw new SluiceError('connection', 'The client is closed.');
    if (this.#failures >= failuresUntilProbing && this.#inFlight > 0) {
      throw new SluiceError('connection', 'The last requests failed, and another one is trying.');
    }
    if (this.#batch && this.#inFlight >= inFlight) return this.#wait(question, signal);
    const request = this.#alone(question);
    return signal ? this.#unlessLeft(request, signal) : request;
  }

  /** The request goes on when its caller leaves, since its answer tells what the server took. */
  #unlessLeft(request: Promise<Decision>, signal: AbortSignal): Promise<Decision> {
    return new Promise((resolve, reject) => {
      const leave = () => reject(signal.reason);
      signal.addEventListener('abort', leave, { once: true });
      request
        .then((decision) => {
          if (signal.aborted) this.#transport.unwanted(decision);
          resolve(decision);
        }, reject)
        .finally(() => signal.removeEventListener('abort', leave));
    });
  }

  async #alone(question: Question): Promise<Decision> {
    this.#inFlight++;
    let failure: unknown = null;
    try {
      return await this.#transport.one(question);
    } catch (error) {
      failure = error;
      throw error;
    } finally {
      this.#ended(failure);
    }
  }

  #wait(question: Question, signal?: AbortSignal): Promise<Decision> {
    return new Promise((resolve, reject) => {
      let left = false;
      const finish = () => {
        clearTimeout(stall);
        clearTimeout(timeout);
        signal?.removeEventListener('abort', abort);
      };
      const waiting: Waiting = {
        question,
        resolve: (decision) => {
          finish();
          if (left) this.#transport.unwanted(decision);
          resolve(decision);
        },
        reject: (error) => {
          finish();
          reject(error);
        },
      };
      /** Takes the check out of the queue, so that nothing is taken for a caller that is gone. */
      const leave = (error: unknown) => {
        left = true;
        this.#waiting = this.#waiting.filter((other) => other !== waiting);
        waiting.reject(error);
      };
      const abort = () => leave(signal?.reason);
      const stall = setTimeout(() => {
        if (this.#inFlight < mostInFlight && this.#failures < failuresUntilProbing) this.#sendNext();
      }, this.#timeout * stallFraction);
      const timeout = setTimeout(() => leave(new SluiceError('timeout', 'No answer in time.')), this.#timeout);
      signal?.addEventListener('abort', abort, { once: true });
      this.#waiting.push(waiting);
    });
  }

  /** Counts a request that is over, null being a good one, and sends those that waited for it. */
  #ended(failure: unknown): void {
    this.#inFlight--;
    if (failure === null || (failure instanceof SluiceError && ['request', 'key'].includes(failure.kind))) {
      this.#failures = 0; // a refusal is an answer
    } else {
      this.#failures++;
    }
    if (this.#inFlight < inFlight) this.#sendNext();
  }

  #sendNext(): void {
    let n = 0;
    for (let size = 0; n < this.#waiting.length && n < maxBatch; n++) {
      size += this.#waiting[n]?.question.body.length ?? 0;
      if (n > 0 && size > maxBatchCharacters) break;
    }
    if (n === 0 || this.closed) return;
    const batch = this.#waiting.splice(0, n);
    this.#inFlight++;
    this.#send(batch).then((failure) => this.#ended(failure));
  }

  /** Asks for several callers, and returns why that failed. The request is nobody's own, so no caller's signal ends it. */
  async #send(batch: Waiting[]): Promise<unknown> {
    try {
      const [first] = batch;
      if (batch.length === 1 && first) {
        first.resolve(await this.#transport.one(first.question));
        return null;
      }
      const decisions = await this.#transport.many(batch.map(({ question }) => question));
      batch.forEach((waiting, i) => {
        waiting.resolve(decisions[i] as Decision);
      });
      return null;
    } catch (error) {
      if (batch.length > 1 && error instanceof SluiceError && error.kind === 'request') {
        // Nothing was taken. Those that are not valid are told, and the others asked again without them.
        const rest = tell(batch, error);
        if (rest.length === 0) return null;
        if (rest.length < batch.length) return this.#send(rest);
      }
      for (const waiting of batch) waiting.reject(error);
      return error;
    }
  }
}

/** Ends the checks that a 400 names, each with the pointers of its own check, and returns the others. */
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
