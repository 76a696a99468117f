/** One question: may this request pass? Every field is optional; rules match by those that are set. */
export interface Check {
  /** The limited user; at most 256 bytes. */
  userId?: string | undefined;
  /** The plan to judge by; by default the user's own, else the tenant's. */
  plan?: string | undefined;
  /** A route template such as `/orders/{id}`; at most 1024 bytes. */
  endpoint?: string | undefined;
  /** In capital letters. */
  method?: string | undefined;
  /** IPv4 or IPv6. */
  ip?: string | undefined;
  /** Requests to count, at most 1e9, rounded to 6 decimals. The default is 1; 0 looks and takes nothing. */
  cost?: number | undefined;
  /** Costs of up to 7 other meters, such as `input_tokens` or `usd`, in the same range. */
  costs?: Record<string, number> | undefined;
  /** For rules with `attr.<name>`; at most 16. */
  attributes?: Record<string, string> | undefined;
}

/** The decider: the server, an earlier denial whose wait is not over, or the failure mode. */
export type Source = 'server' | 'memory' | 'failure_mode';

/** The answer to a check. */
export interface Decision {
  allowed: boolean;
  /** 200 allowed, 429 denied, 503 denied because nobody could decide. */
  status: number;
  /** Why it is denied, such as `limit_exceeded`. */
  reason: string | null;
  /** The plan that was judged by. */
  plan: string | null;
  /** How long until the same check may pass; null if waiting does not help, 0 if it is allowed. */
  retryAfterMs: number | null;
  /** What `Retry-After` adds to it, from 0 to 50. Middleware does, so that not all callers return together. */
  retryJitterPercent: number;
  /** How long an allowed caller waits before going on (leaky buckets). Middleware does, `check` does not. */
  delayMs: number;
  /** Burst of the limit that denied, else of the one with the fewest tokens left; null if no limit applied. */
  limit: number | null;
  /** Whole tokens left of it. */
  remaining: number | null;
  /** How long until its bucket is full. */
  resetAfterMs: number | null;
  /** Scope of the rule that denied: user, endpoint, global or ip. */
  violatedTier: string | null;
  /** Its pattern. */
  violatedRule: string | null;
  violatedRuleId: number | null;
  /** Each rule that took part. */
  tiers: Tier[];
  /** The argument of `settle`, `release`, `cancel` and `extend`; null if nothing was reserved. */
  reservation: string | null;
  /** The server decided without its store, by the rules' failure modes. */
  degraded: boolean;
  source: Source;
  /** Why the server did not decide, if the failure mode did. */
  error: SluiceError | null;
}

/** One rule's part of a decision. */
export interface Tier {
  ruleId: number;
  name: string;
  scope: string;
  keyPattern: string;
  /** What the rule counts; null for requests. */
  meter: string | null;
  /** `enforce`, or `shadow`: it reports and never denies. */
  mode: string;
  allowed: boolean;
  limit: number | null;
  remaining: number | null;
  retryAfterMs: number | null;
  resetAfterMs: number | null;
  /** What earns `limit`; null if `RateLimit-Policy` has no item for the tier. */
  windowMs: number | null;
  /** How long until `remaining` grows. */
  moreAfterMs: number | null;
}

/** What became of a reservation. */
export interface Settlement {
  /** False: it was settled before, was extended, has expired, or there was none. */
  settled: boolean;
  /** Requests that were charged in the end; 0 if it was not settled. */
  charged: number;
  /** What was charged in the end of other meters. */
  costs: Record<string, number>;
  /** `extend` found it open. */
  extended: boolean;
  /** `extend` asked for more than is left; the reservation is open, and as it was. */
  denied: boolean;
}

/** What became of a record. */
export interface Recorded {
  /** False: its id was recorded before. */
  recorded: boolean;
  /** Tokens, by the id of each rule that was charged. */
  charged: Map<number, number>;
}

/**
 * One sort of failure: no answer within the time-out; no connection; the server cannot decide; something else than
 * Sluice answered; the key is wrong; the request itself is not valid.
 */
export type ErrorKind = 'timeout' | 'connection' | 'unavailable' | 'protocol' | 'key' | 'request';

/** What is wrong with one value of a request. */
export interface FieldError {
  /** A JSON pointer (RFC 6901), such as `/user_id`. */
  pointer: string;
  detail: string;
}

/** Why the server decided nothing. It holds no key and no URL. */
export class SluiceError extends Error {
  override name = 'SluiceError';
  readonly kind: ErrorKind;
  /** The HTTP status; 0 if there was no answer. */
  readonly status: number;
  /** Type of the problem document (RFC 9457), such as `urn:sluice:problem:unauthorized`; or ''. */
  readonly type: string;
  /** The server's log has it, too; or ''. */
  readonly requestId: string;
  readonly fields: FieldError[];

  constructor(
    kind: ErrorKind,
    detail: string,
    more: { status?: number; type?: string; requestId?: string; fields?: FieldError[] } = {},
  ) {
    const status = more.status ?? 0;
    const fields = (more.fields ?? []).map(({ pointer, detail }) => `; ${pointer} ${detail}`).join('');
    super(`sluice: ${kind}${status ? ` (${status})` : ''}: ${detail}${fields}`);
    this.kind = kind;
    this.status = status;
    this.type = more.type ?? '';
    this.requestId = more.requestId ?? '';
    this.fields = more.fields ?? [];
  }
}
