import { Breaker } from './breaker.js';
import { longestTimer } from './limiter.js';
import { Memory } from './memory.js';
import { whenOver } from './patience.js';
import { Queue } from './queue.js';
import { type Check, type Decision, type Recorded, type Settlement, SluiceError } from './types.js';
import { version } from './version.js';
import {
  amountOf,
  amountsOf,
  decode,
  decodeRecorded,
  decodeReport,
  decodeSettlement,
  encode,
  encodeBatch,
  encodeRecord,
  encodeReport,
  type Json,
  problem,
  type Question,
  undecided,
} from './wire.js';

const recordPauses = [100, 400];

/** Decides checks that the server does not: `open` lets them pass, `closed` denies them with status 503. */
export type FailureMode = 'open' | 'closed';

export interface Options {
  /** The check endpoint's, such as `http://127.0.0.1:8080`. */
  url: string;
  /** An API key with the permission `check`. */
  key: string;
  /**
   * Milliseconds that a check waits for the server, by default 100. Calls without a failure mode, such as settle, wait
   * ten times as long.
   */
  timeout?: number | undefined;
  /** By default `open`. */
  failureMode?: FailureMode | undefined;
  /** Milliseconds that a denial is cached at most; by default 5000; 0 disables the cache. */
  denialMemory?: number | undefined;
  /** Whether concurrent checks share requests; by default true. Cloudflare Workers need false. */
  batch?: boolean | undefined;
  /** Called after each check, for metrics. */
  onDecision?: ((observation: Observation) => void) | undefined;
  /** Logs when the server stops and resumes deciding; by default `console`. */
  logger?: { warn(message: string): void; info(message: string): void } | undefined;
  /** Must not repeat requests; by default the runtime's. */
  fetch?: typeof fetch | undefined;
}

/** The argument of `onDecision`. */
export interface Observation {
  check: Check;
  /** Missing if the check rejected. */
  decision?: Decision;
  error?: unknown;
  /** The caller's wait, in milliseconds. */
  took: number;
}

const patientTimeouts = 10;

/**
 * Milliseconds without a failure before the log says that the server decides again, so that occasional failures are one
 * line.
 */
const quietAfter = 1000;

/** A client of one server with one key, for a whole process. */
export class Sluice {
  readonly logger: NonNullable<Options['logger']>;
  readonly #base: string;
  readonly #headers: Record<string, string>;
  readonly #options: Options;
  readonly #timeout: number;
  readonly #fetch: typeof fetch;
  /** Separate, because a caller's batch of 1,000 checks may take longer than the time-out. */
  readonly #batches: Breaker;
  readonly #queue: Queue;
  readonly #memory: Memory;
  #failedChecks = 0; // since the log said last that the server decides
  #failedLast = 0;
  #requests = new Set<Promise<unknown>>(); // that close waits for
  now: () => number = () => performance.now();

  constructor(options: Options) {
    const { url, key, timeout = 100, failureMode = 'open', denialMemory = 5000, batch = true } = options;
    let parsed: URL | undefined;
    try {
      parsed = new URL(url);
    } catch {} // the message would name whatever is in it
    if (!parsed || !/^https?:$/.test(parsed.protocol)) {
      throw new TypeError("sluice: url must be the check endpoint's address, such as http://127.0.0.1:8080");
    }
    if (parsed.username || parsed.password || parsed.search || parsed.hash) {
      throw new TypeError('sluice: url must be an address alone; the key goes into key');
    }
    // fetch's own message would contain the key.
    if (typeof key !== 'string' || !/^[!-~]+$/.test(key)) {
      throw new TypeError('sluice: key must be an API key, slk_…');
    }
    if (!(timeout > 0) || patientTimeouts * timeout > longestTimer) {
      const most = Math.floor(longestTimer / patientTimeouts);
      throw new TypeError(`sluice: timeout is ${timeout}; it must be milliseconds above 0, at most ${most}`);
    }
    if (failureMode !== 'open' && failureMode !== 'closed')
      throw new TypeError('sluice: failureMode must be open or closed');
    this.#base = url.replace(/\/+$/, '');
    this.#headers = { authorization: `Bearer ${key}`, 'user-agent': `sluice-js/${version}` };
    this.#options = { ...options, failureMode };
    this.logger = options.logger ?? console;
    this.#timeout = timeout;
    this.#fetch = options.fetch ?? ((...args) => fetch(...args));
    this.#memory = new Memory(denialMemory);
    const transport = {
      one: (question: Question, within?: number) => this.#one(question, within),
      many: (questions: Question[], within?: number) => this.#many(questions, within),
      // Otherwise a slot would stay taken until its max_hold.
      unwanted: ({ reservation }: Decision) => void this.release(reservation).catch(() => undefined),
    };
    const now = () => this.now();
    this.#batches = new Breaker(timeout, now);
    this.#queue = new Queue(transport, this.#memory, new Breaker(timeout, now), timeout, batch);
  }

  /**
   * Asks whether a request may pass. Rejects only with a SluiceError of the kind `request`, for an invalid check such
   * as of an unknown plan, or with the reason of the signal.
   */
  check(check: Check, options: { signal?: AbortSignal | undefined } = {}): Promise<Decision> {
    return this.#check(check, options.signal);
  }

  /**
   * `check` with an estimated cost. An allowed decision's `reservation` goes to `settle` within `hold` milliseconds, by
   * default ten minutes.
   */
  reserve(
    check: Check,
    options: { hold?: number | undefined; signal?: AbortSignal | undefined } = {},
  ): Promise<Decision> {
    return this.#check(check, options.signal, options.hold ?? 0);
  }

  /**
   * Decides up to 1000 checks in order, in one request, without the cache of denials. If a check is invalid, the error
   * names it, and nothing is taken.
   */
  async checkBatch(checks: Check[]): Promise<Decision[]> {
    const began = performance.now();
    if (checks.length === 0) return [];
    const questions = encodeBatch(checks);
    let decisions: Decision[];
    try {
      decisions = await this.#together(questions);
      this.#recovered();
    } catch (error) {
      const decision = this.#fallBack(error);
      decisions = checks.map(() => ({ ...decision }));
    }
    const took = performance.now() - began;
    decisions.forEach((decision, i) => {
      this.#options.onDecision?.({ check: checks[i] as Check, decision, took });
    });
    return decisions;
  }

  /**
   * Replaces a reservation's estimate by the real cost: the rest returns, or more is taken, even below zero. Settles
   * once, so a retry is safe. null, as of the failure mode, is not sent. Costs by meter leave other meters' estimates.
   */
  async settle(reservation: string | null, cost: number | Record<string, number>): Promise<Settlement> {
    return this.#settle(reservation, costMembers(cost));
  }

  /**
   * Charges `cost` requests, and `check.costs` of other meters, and is never denied. `check.cost` is ignored, and the
   * failure mode does not apply. The key needs the permissions `check` and `report`. An `id` of 16 to 255 visible ASCII
   * characters is charged once within two minutes. The record is sent up to three times, while the server does not
   * answer or cannot decide. Without an id, record sends once, and may fail after the charge.
   */
  async record(check: Check, cost: number, { id }: { id?: string | undefined } = {}): Promise<Recorded> {
    const body = encodeRecord(check, cost, id);
    for (const pause of id ? recordPauses : []) {
      try {
        return decodeRecorded(await this.#patient('POST', '/v1/check', body));
      } catch (error) {
        const { kind, status } = error as SluiceError;
        if (kind !== 'timeout' && kind !== 'connection' && !(status >= 500)) throw error;
        await new Promise((resume) => setTimeout(resume, pause));
      }
    }
    return decodeRecorded(await this.#patient('POST', '/v1/check', body));
  }

  /** Returns all that a reservation took. */
  cancel(reservation: string | null): Promise<Settlement> {
    return this.#settle(reservation, { cancel: true });
  }

  /** Frees a reservation's concurrency slots, and leaves its estimate charged. */
  release(reservation: string | null): Promise<Settlement> {
    return this.#settle(reservation, {});
  }

  /**
   * Prolongs a reservation by its hold. A cost above the estimate is decided like a check, and becomes the estimate; a
   * lower one changes nothing.
   */
  async extend(reservation: string | null, cost?: number | Record<string, number>): Promise<Settlement> {
    return this.#settle(reservation, { extend: true, ...(cost !== undefined && costMembers(cost)) });
  }

  /**
   * A user's limits and levels, in the JSON of GET /v1/usage. plan is by default the user's own, else the tenant's
   * default.
   */
  usage(userId: string, { plan }: { plan?: string } = {}): Promise<unknown> {
    const query = plan ? `&plan=${encodeURIComponent(plan)}` : '';
    return this.#patient('GET', `/v1/usage?user_id=${encodeURIComponent(userId)}${query}`);
  }

  /**
   * Reports a backend's requests since the last report, about once a second, for rules that adapt to it: latencies in
   * milliseconds, and the number of failures. False: no active rule adapts to the backend.
   */
  async report(backend: string, latencies: Iterable<number>, errors = 0): Promise<boolean> {
    return decodeReport(await this.#patient('POST', '/v1/report', encodeReport(backend, latencies, errors)));
  }

  /** Waits for requests in flight. The failure mode decides waiting and later checks. */
  async close(): Promise<void> {
    await this.#queue.close();
    while (this.#requests.size > 0) await Promise.allSettled(this.#requests);
  }

  async #check(check: Check, signal?: AbortSignal, hold?: number): Promise<Decision> {
    const began = performance.now();
    const observe = this.#options.onDecision;
    try {
      const decision = await this.#decide(check, signal, hold);
      observe?.({ check, decision, took: performance.now() - began });
      return decision;
    } catch (error) {
      observe?.({ check, error, took: performance.now() - began });
      throw error;
    }
  }

  async #decide(check: Check, signal?: AbortSignal, hold?: number): Promise<Decision> {
    signal?.throwIfAborted();
    const question = encode(check, hold);
    const recalled = this.#memory.recall(question);
    if (recalled) return recalled;
    try {
      const decision = await this.#queue.ask(question, signal);
      if (decision.source === 'server') this.#recovered();
      return decision;
    } catch (error) {
      signal?.throwIfAborted();
      const isRefused = error instanceof SluiceError && error.kind === 'request';
      const learned = isRefused ? null : this.#memory.recall(question); // while this check waited
      return learned ?? this.#fallBack(error);
    }
  }

  async #together(questions: Question[]): Promise<Decision[]> {
    this.#batches.admit();
    try {
      const decisions = await this.#many(questions);
      this.#batches.ended(null);
      return decisions;
    } catch (error) {
      this.#batches.ended(error);
      throw error;
    }
  }

  /** Decides by the failure mode, unless the request is invalid. */
  #fallBack(error: unknown): Decision {
    if (!(error instanceof SluiceError) || error.kind === 'request') throw error;
    const { failureMode } = this.#options;
    this.#failedLast = this.now();
    if (this.#failedChecks++ === 0) {
      this.logger.warn(
        `Sluice does not decide; checks are decided by the failure mode, ${failureMode}: ${error.message}`,
      );
    }
    if (failureMode === 'open') return undecided(error);
    return { ...undecided(error), allowed: false, status: 503, reason: 'sluice_unavailable', retryAfterMs: 1000 };
  }

  #recovered(): void {
    if (this.#failedChecks === 0 || this.now() - this.#failedLast < quietAfter) return;
    this.logger.info(`Sluice decides again, after ${this.#failedChecks} checks`);
    this.#failedChecks = 0;
  }

  #send(method: string, path: string, body: string | null, timeout: number) {
    const request = this.#sendNow(method, path, body, timeout);
    this.#requests.add(request);
    const ended = () => this.#requests.delete(request);
    request.then(ended, ended);
    return request;
  }

  /** Sends a request once. The time-out includes the body. */
  async #sendNow(method: string, path: string, body: string | null, timeout: number) {
    const controller = new AbortController();
    let late = false;
    const cancel = whenOver(timeout, () => {
      late = true;
      controller.abort();
    });
    try {
      const response = await this.#fetch(this.#base + path, {
        method,
        headers: body === null ? this.#headers : { ...this.#headers, 'content-type': 'application/json' },
        body,
        redirect: 'manual', // the key must not follow to another place
        signal: controller.signal,
      });
      const text = await response.text();
      const [kind = ''] = (response.headers.get('content-type') ?? '').split(';');
      let answer: Json = null;
      try {
        if (/^application\/(problem\+)?json$/.test(kind.trim())) answer = JSON.parse(text);
      } catch {} // problem() says what it is
      return { status: response.status, answer, headers: response.headers };
    } catch (error) {
      if (late) throw new SluiceError('timeout', `No answer within ${Math.ceil(timeout)} ms.`);
      throw new SluiceError('connection', reason(error));
    } finally {
      cancel();
    }
  }

  async #one(question: Question, within = this.#timeout): Promise<Decision> {
    const { status, answer, headers } = await this.#send('POST', '/v1/check', question.body, within);
    const decision = decode(answer, status);
    if (decision) return decision;
    if (status === 429 && typeof answer?.type === 'string') {
      const reason = answer.type.slice(answer.type.lastIndexOf(':') + 1).replaceAll('-', '_');
      const retryAfterMs = Math.max(1, Number(headers.get('retry-after')) || 1) * 1000;
      return { ...(decode({ allowed: false }, status) as Decision), reason, retryAfterMs };
    }
    throw problem(status, answer);
  }

  async #many(questions: Question[], within = this.#timeout): Promise<Decision[]> {
    const body = `{"checks":[${questions.map((question) => question.body).join(',')}]}`;
    const { status, answer } = await this.#send('POST', '/v1/check/batch', body, within);
    if (status !== 200 || !Array.isArray(answer?.results)) throw problem(status, answer);
    const decisions = answer.results.map((result: Json) => decode(result, result?.status)) as (Decision | null)[];
    if (decisions.length !== questions.length || decisions.includes(null)) {
      throw new SluiceError('protocol', 'The batch has other results than checks.', { status });
    }
    return decisions as Decision[];
  }

  async #settle(reservation: string | null, members: object): Promise<Settlement> {
    if (!reservation) return { settled: false, charged: 0, costs: {}, extended: false, denied: false };
    return decodeSettlement(await this.#patient('POST', '/v1/settle', JSON.stringify({ reservation, ...members })));
  }

  /** Sends a request without a failure mode. */
  async #patient(method: string, path: string, body: string | null = null): Promise<Json> {
    const { status, answer } = await this.#send(method, path, body, patientTimeouts * this.#timeout);
    if (status !== 200 || answer === null) throw problem(status, answer);
    return answer;
  }
}

function costMembers(cost: number | Record<string, number>) {
  return typeof cost === 'number' ? { cost: amountOf('/cost', cost) } : { costs: amountsOf(cost) };
}

/** fetch's own message is "fetch failed"; the cause says more, and names no header. */
function reason(error: unknown): string {
  const cause = (error as { cause?: { code?: string; message?: string } } | null)?.cause;
  return cause?.code || cause?.message || 'fetch failed';
}
