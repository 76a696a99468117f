import type { Sluice } from './client.js';
import { pause } from './limiter.js';
import { type Check, type Decision, SluiceError } from './types.js';
import { retryMs } from './wire.js';

/** The part of a response that the middleware uses, of Express, Connect or node:http. */
export interface Answer {
  statusCode: number;
  setHeader(name: string, value: string): unknown;
  end(body: string): unknown;
  once(event: 'close', listener: () => void): unknown;
  readonly closed?: boolean;
}

/** Returns the check of a request; null or undefined lets it pass. */
export type Identify<Request> = (request: Request) => Check | null | undefined | Promise<Check | null | undefined>;

/**
 * Middleware for Express, Connect and the like. A denied request gets 429, or 503 by the failure mode, with Retry-After
 * and a problem document (RFC 9457); an invalid check gets 400. Answers get RateLimit, RateLimit-Policy and
 * X-RateLimit-Limit, -Remaining and -Reset. A concurrency slot is released after the answer.
 */
export function limit<Request>(limits: Sluice, identify: Identify<Request>) {
  return async (request: Request, answer: Answer, next: (error?: unknown) => void): Promise<void> => {
    const left = new AbortController();
    if (answer.closed) return;
    answer.once('close', () => left.abort());
    let passes = false;
    try {
      const check = await identify(request);
      if (left.signal.aborted) return;
      passes = !check || (await ask(limits, check, answer, left.signal));
    } catch (error) {
      if (!left.signal.aborted) next(error); // identify failed
      return;
    }
    if (passes) next();
  };
}

async function ask(limits: Sluice, check: Check, answer: Answer, left: AbortSignal): Promise<boolean> {
  let decision: Decision;
  try {
    decision = await limits.check(check, { signal: left });
  } catch (error) {
    if (!(error instanceof SluiceError)) throw error;
    limits.logger.warn(`Sluice refused a check: ${error.message}`);
    refuse(answer, 400, 'about:blank', 'Bad Request', 'The request cannot be identified.');
    return false;
  }
  const { reservation } = decision;
  if (reservation) {
    const release = () => limits.release(reservation).catch(() => undefined); // it is freed after its max_hold
    if (left.aborted) {
      release();
      return false;
    }
    answer.once('close', release);
  }
  for (const [name, value] of Object.entries(headers(decision))) answer.setHeader(name, value);
  if (!decision.allowed) {
    deny(answer, decision);
    return false;
  }
  if (decision.delayMs > 0) await pause(decision.delayMs, left);
  return true;
}

/** The spelling of draft-ietf-httpapi-ratelimit-headers-11. */
const spelling = {
  policyField: 'RateLimit-Policy',
  policyItem: (name: string, quota: number, window: number) => `"${name}";q=${quota};w=${window}`,
  limitField: 'RateLimit',
  limitItem: (name: string, rest: number, more: number) => `"${name}";r=${rest};t=${more}`,
};

/** The tiers with an item in RateLimit-Policy, and their names. */
function policies({ tiers }: Decision) {
  return tiers.flatMap((tier) =>
    tier.mode === 'enforce' && tier.windowMs ? [{ ...tier, name: `${tier.scope}-${tier.ruleId}` }] : [],
  );
}

const seconds = (ms: number | null) => Math.ceil((ms ?? 0) / 1000);

/**
 * RateLimit and RateLimit-Policy; if a limit applied, X-RateLimit-Limit, -Remaining and -Reset (in Unix seconds); and
 * Retry-After, in whole seconds, for a denial that a wait ends.
 */
export function headers(decision: Decision, now = Date.now()): Record<string, string> {
  const { limit, remaining, resetAfterMs } = decision;
  const wait = retrySeconds(decision);
  const named = policies(decision);
  const policy = named.map((t) => spelling.policyItem(t.name, t.limit ?? 0, Math.max(1, seconds(t.windowMs))));
  const left = named.map((t) =>
    spelling.limitItem(t.name, Math.floor(Math.max(0, t.remaining ?? 0)), seconds(t.moreAfterMs)),
  );
  return {
    ...(named.length > 0 ? { [spelling.policyField]: policy.join(', '), [spelling.limitField]: left.join(', ') } : {}),
    ...(limit === null
      ? {}
      : {
          'X-RateLimit-Limit': String(limit),
          'X-RateLimit-Remaining': String(remaining ?? 0),
          'X-RateLimit-Reset': String(Math.ceil((now + (resetAfterMs ?? 0)) / 1000)),
        }),
    ...(wait > 0 ? { 'Retry-After': String(wait) } : {}),
  };
}

/** Rounds up, with the jitter; 0: no wait helps. */
function retrySeconds(decision: Decision): number {
  return decision.allowed ? 0 : seconds(retryMs(decision));
}

function deny(answer: Answer, decision: Decision): void {
  const wait = retrySeconds(decision);
  const busy = decision.status === 503;
  const { reason } = decision;
  const type =
    reason === 'blocked' || reason === 'cost_exceeds_limit' // the draft has no type for them
      ? `urn:sluice:problem:${reason.replaceAll('_', '-')}`
      : `https://iana.org/assignments/http-problem-types#${busy ? 'temporary-reduced-capacity' : 'quota-exceeded'}`;
  const violated = policies(decision).flatMap(({ allowed, name }) => (allowed ? [] : [name]));
  const detail = wait > 0 ? `Try again in ${wait} s.` : 'Waiting does not help.';
  const more = violated.length > 0 ? { 'violated-policies': violated } : {};
  refuse(answer, decision.status, type, busy ? 'Service Unavailable' : 'Too Many Requests', detail, more);
}

function refuse(answer: Answer, status: number, type: string, title: string, detail: string, more = {}): void {
  answer.statusCode = status;
  answer.setHeader('Content-Type', 'application/problem+json');
  answer.setHeader('Cache-Control', 'no-store');
  answer.end(JSON.stringify({ type, title, status, detail, ...more }));
}
