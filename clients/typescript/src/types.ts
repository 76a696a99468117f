/** A check: whether a request may pass. Every field is optional; rules match by those that are set. */
export interface Check {
  /** The limited user; at most 256 bytes. */
  userId?: string | undefined;
  /** By default the user's own plan, else the tenant's. */
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

/** The server, a cached denial, or the failure mode. */
export type Source = 'server' | 'memory' | 'failure_mode';

export interface Decision {
  allowed: boolean;
  /** 200 allowed, 429 denied, 503 denied by the failure mode. */
  status: number;
  /** The reason of a denial, such as `limit_exceeded`. */
  reason: string | null;
  /** The plan in force. */
  plan: string | null;
  /** Milliseconds until the same check may pass; null if waiting does not help, 0 if allowed. */
  retryAfterMs: number | null;
  /** Added by middleware to `Retry-After`, from 0 to 50, so that callers do not return together. */
  retryJitterPercent: number;
  /** Milliseconds that an allowed caller must wait (leaky buckets). Middleware does, `check` does not. */
  delayMs: number;
  /** The burst of the limit that denied, else of the one with the fewest tokens; null if no limit applied. */
  limit: number | null;
  /** Whole tokens. */
  remaining: number | null;
  /** Milliseconds until the bucket is full. */
  resetAfterMs: number | null;
  /** The denying rule's scope: user, endpoint, global or ip. */
  violatedTier: string | null;
  /** The denying rule's pattern. */
  violatedRule: string | null;
  violatedRuleId: number | null;
  tiers: Tier[];
  /** The argument of `settle`, `release`, `cancel` and `extend`; null if nothing was reserved. */
  reservation: string | null;
  /** Decided without the store, by the rules' failure modes. */
  degraded: boolean;
  source: Source;
  /** Why the server did not decide, if the failure mode did. */
  error: SluiceError | null;
}

/** A rule's result. */
export interface Tier {
  ruleId: number;
  name: string;
  scope: string;
  keyPattern: string;
  /** null for requests. */
  meter: string | null;
  /** `enforce`, or `shadow`, which never denies. */
  mode: string;
  allowed: boolean;
  limit: number | null;
  remaining: number | null;
  retryAfterMs: number | null;
  resetAfterMs: number | null;
  /** Milliseconds that earn `limit`; null if `RateLimit-Policy` has no item for the tier. */
  windowMs: number | null;
  /** Milliseconds until `remaining` grows. */
  moreAfterMs: number | null;
}

export interface Settlement {
  /** False: settled or extended before, expired, or missing. */
  settled: boolean;
  /** Requests charged in the end; 0 if not settled. */
  charged: number;
  /** Charged of other meters. */
  costs: Record<string, number>;
  /** `extend` found it open. */
  extended: boolean;
  /** `extend` asked for more than is left; the reservation stays open as it was. */
  denied: boolean;
}

export interface Recorded {
  /** False: its id was recorded before. */
  recorded: boolean;
  /** Tokens, by the id of each rule that was charged. */
  charged: Map<number, number>;
}

/**
 * timeout: no answer; connection: none; unavailable: the server cannot decide; protocol: the answer is not Sluice's;
 * key: wrong; request: invalid.
 */
export type ErrorKind = 'timeout' | 'connection' | 'unavailable' | 'protocol' | 'key' | 'request';

export interface FieldError {
  /** A JSON pointer (RFC 6901), such as `/user_id`. */
  pointer: string;
  detail: string;
}

/** Why the server did not decide, without the key and the URL. */
export class SluiceError extends Error {
  override name = 'SluiceError';
  readonly kind: ErrorKind;
  /** The HTTP status; 0 if there was no answer. */
  readonly status: number;
  /** Type of the problem document (RFC 9457), such as `urn:sluice:problem:unauthorized`; or ''. */
  readonly type: string;
  /** As in the server's log; or ''. */
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
