/** The JSON of checks and decisions. */
import {
  type Check,
  type Decision,
  type FieldError,
  type Recorded,
  type Settlement,
  SluiceError,
  type Tier,
} from './types.js';

/** An encoded check, with its key in the cache of denials. */
export interface Question {
  body: string;
  /** Everything but the cost. */
  identity: string;
  cost: number;
}

/** The server's bounds, in bytes for texts. */
const maxUserId = 256;
const maxPlan = 256;
const maxEndpoint = 1024;
const maxMethod = 32;
const maxIp = 64;
const maxAttributes = 16;
const maxAttributeValue = 256;
const maxMeters = 8;
const maxCost = 1e9;
const maxHold = 86_400_000;

/**
 * Encodes a check. A hold, in milliseconds, reserves; 0 is the server's default. No invalid check is sent, because
 * other checks may share the request.
 */
export function encode(check: Check, hold?: number): Question {
  const { userId, plan, endpoint, method, ip, attributes, cost = 1, costs } = check;
  const named = {
    ...(userId ? { user_id: textOf('/user_id', String(userId), maxUserId) } : {}),
    ...(plan ? { plan: textOf('/plan', plan, maxPlan) } : {}),
    ...(endpoint ? { endpoint: textOf('/endpoint', endpoint, maxEndpoint) } : {}),
    ...(method ? { method: textOf('/method', method, maxMethod) } : {}),
    ...(ip ? { ip: textOf('/ip', ip, maxIp) } : {}),
    ...(attributes && Object.keys(attributes).length > 0 ? { attributes: attributesOf(attributes) } : {}),
  };
  if (method && !/^[\w!#$%&'*+.^`|~-]+$/.test(method)) throw refused('/method', 'must be an HTTP method such as GET');
  if (ip && !isAddress(ip)) {
    throw refused('/ip', 'must be an IPv4 or IPv6 address, without port, zone or prefix length');
  }
  if (hold !== undefined && !(hold >= 0 && hold <= maxHold)) {
    throw refused('/reserve_for', `must be from 0 to 86400 seconds; it is ${hold / 1000}`);
  }
  const amount = amountOf('/cost', cost);
  const priced = costsOf(amount, costs);
  const identity = JSON.stringify({ ...named, ...(priced && { costs: priced }) }); // a denial is for the same costs
  const more = {
    ...(priced ? { costs: priced } : amount === 1 ? {} : { cost: amount }),
    ...(hold === undefined ? {} : { reserve: true }),
    ...(hold ? { reserve_for: Math.ceil(hold / 1000) } : {}),
  };
  const body = Object.keys(more).length === 0 ? identity : JSON.stringify({ ...named, ...more });
  return { body, identity, cost: amount };
}

export function encodeBatch(checks: Check[]): Question[] {
  return checks.map((check, i) => {
    try {
      return encode(check);
    } catch (error) {
      const [field] = error instanceof SluiceError ? error.fields : [];
      throw field ? refused(`/checks/${i}${field.pointer}`, field.detail) : error;
    }
  });
}

export function encodeRecord(check: Check, cost: number, id?: string): string {
  const { costs, ...rest } = check;
  const { identity, cost: amount } = encode({ ...rest, cost });
  const priced = costsOf(amount, costs);
  return JSON.stringify({
    ...JSON.parse(identity),
    ...(priced ? { costs: priced } : { cost: amount }),
    record: true,
    ...(id ? { record_id: id } : {}),
  });
}

function textOf(pointer: string, text: unknown, most: number): string {
  if (typeof text !== 'string') throw refused(pointer, 'must be a string');
  if (3 * text.length > most) {
    const { length } = new TextEncoder().encode(text);
    if (length > most) throw refused(pointer, `is ${length} bytes long; at most ${most} are accepted`);
  }
  if (/\p{Surrogate}/u.test(text)) throw refused(pointer, 'must be valid Unicode');
  if (text.includes('\0')) throw refused(pointer, 'contains the character NUL; remove it');
  return text;
}

function attributesOf(attributes: Record<string, string | undefined>): Record<string, string> {
  const sorted = Object.entries(attributes).filter(([, value]) => value !== undefined);
  if (sorted.length > maxAttributes) {
    throw refused('/attributes', `has ${sorted.length} attributes; send at most ${maxAttributes}`);
  }
  sorted.sort(([a], [b]) => (a < b ? -1 : 1));
  return Object.fromEntries(
    sorted.map(([name, value]) => {
      if (!/^[\w.-]{1,64}$/.test(name)) {
        throw refused('/attributes', "has a name other than 1 to 64 letters, digits, '_', '.' and '-'");
      }
      return [name, textOf(`/attributes/${name}`, value, maxAttributeValue)];
    }),
  );
}

const ipv4 = /^((25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)(\.(?!$)|$)){4}$/;

function isAddress(ip: string): boolean {
  return ip.includes(':') ? /^[\da-f:.]+$/i.test(ip) && URL.canParse(`http://[${ip}]`) : ipv4.test(ip);
}

/** Null if there are no costs but that of requests. */
function costsOf(requests: number, costs: Record<string, number> | undefined): Record<string, number> | null {
  if (!costs || Object.keys(costs).length === 0) return null;
  const all = { requests, ...amountsOf(costs) };
  if (Object.keys(all).length > maxMeters) throw refused('/costs', `has too many meters; send at most ${maxMeters}`);
  return all;
}

/** In the order of their names. */
export function amountsOf(costs: Record<string, number>): Record<string, number> {
  const sorted = Object.entries(costs).sort(([a], [b]) => (a < b ? -1 : 1));
  return Object.fromEntries(
    sorted.map(([meter, cost]) => {
      if (!/^[a-z][a-z0-9_]{0,31}$/.test(meter)) {
        throw refused('/costs', "has a meter other than a lower-case letter and up to 31 of a-z, 0-9 and '_'");
      }
      return [meter, amountOf(`/costs/${meter}`, cost)];
    }),
  );
}

/** pointer is for errors. */
export function amountOf(pointer: string, cost: number): number {
  const amount = Number.isFinite(cost) ? tokens(cost) : Number.NaN;
  if (!(amount >= 0 && amount <= maxCost))
    throw refused(pointer, `must be a number from 0 to 1000000000; it is ${cost}`);
  return amount;
}

/** In milliseconds; the last bucket, inf, is above them. */
const latencyBounds = [
  1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1000, 1500, 2000, 3000, 5000, 7000, 10000, 15000,
  20000, 30000, 60000,
];

export function encodeReport(backend: string, latencies: Iterable<number>, errors: number): string {
  const latency_ms: Record<string, number> = {};
  let requests = 0;
  for (const latency of latencies) {
    const bucket = String(latencyBounds.find((bound) => latency <= bound) ?? 'inf');
    latency_ms[bucket] = (latency_ms[bucket] ?? 0) + 1;
    requests++;
  }
  return JSON.stringify({ reports: [{ backend, requests, errors, latency_ms }] });
}

export function tokens(amount: number): number {
  return Math.round(amount * 1e6) / 1e6;
}

export function refused(pointer: string, detail: string): SluiceError {
  return new SluiceError('request', 'The check is not valid.', { fields: [{ pointer, detail }] });
}

// biome-ignore lint/suspicious/noExplicitAny: it is JSON of somebody else
export type Json = any;

/** Returns null for anything but a decision that fits the status. */
export function decode(answer: Json, status: number): Decision | null {
  const fits =
    status === 200 ? answer?.allowed === true : answer?.allowed === false && (status === 429 || status === 503);
  if (!fits) return null;
  try {
    return {
      allowed: answer.allowed,
      status,
      reason: text(answer.reason),
      plan: text(answer.plan),
      retryAfterMs: number(answer.retry_after_ms),
      retryJitterPercent: number(answer.retry_jitter_percent) ?? 0,
      delayMs: number(answer.delay_ms) ?? 0,
      limit: number(answer.limit),
      remaining: number(answer.remaining),
      resetAfterMs: number(answer.reset_after_ms),
      violatedTier: text(answer.violated_tier) as Decision['violatedTier'],
      violatedRule: text(answer.violated_rule),
      violatedRuleId: number(answer.violated_rule_id),
      tiers: (answer.tiers ?? []).map(decodeTier),
      reservation: text(answer.reservation),
      degraded: answer.degraded === true,
      source: 'server',
      error: null,
    };
  } catch (error) {
    if (error instanceof TypeError) return null; // a member has another type
    throw error;
  }
}

/** The wait of a denial with its jitter. */
export function retryMs({ retryAfterMs, retryJitterPercent }: Decision): number | null {
  const jitter = Math.round(Math.min(Math.max(0, retryJitterPercent), 50) * 100);
  return retryAfterMs === null ? null : (retryAfterMs * (10_000 + jitter)) / 10_000;
}

function decodeTier(tier: Json): Tier {
  if (typeof tier !== 'object' || Array.isArray(tier)) throw new TypeError('no tier');
  return {
    ruleId: number(tier.rule_id) ?? 0,
    name: text(tier.name) ?? '',
    scope: (text(tier.scope) ?? '') as Tier['scope'],
    keyPattern: text(tier.key_pattern) ?? '',
    meter: text(tier.meter),
    mode: (text(tier.mode) ?? '') as Tier['mode'],
    allowed: tier.allowed === true,
    limit: number(tier.limit),
    remaining: number(tier.remaining),
    retryAfterMs: number(tier.retry_after_ms),
    resetAfterMs: number(tier.reset_after_ms),
    windowMs: number(tier.window_ms),
    moreAfterMs: number(tier.more_after_ms),
  };
}

function text(value: Json): string | null {
  if (value === null || value === undefined || typeof value === 'string') return value ?? null;
  throw new TypeError('no text');
}

/** JSON.parse makes Infinity of a number that no double holds. */
function number(value: Json): number | null {
  if (value === null || value === undefined || Number.isFinite(value)) return value ?? null;
  throw new TypeError('no number');
}

function boolean(value: Json): boolean {
  if (value === null || value === undefined || typeof value === 'boolean') return value ?? false;
  throw new TypeError('no boolean');
}

export function decodeSettlement(answer: Json): Settlement {
  return whole(() => {
    if (typeof answer.settled !== 'boolean') throw new TypeError('no settlement');
    return {
      settled: answer.settled,
      charged: number(answer.charged) ?? 0,
      costs: Object.fromEntries(
        Object.entries(answer.charged_costs ?? {}).map(([meter, cost]) => [meter, number(cost as Json) ?? 0]),
      ),
      extended: boolean(answer.extended),
      denied: boolean(answer.denied),
    };
  });
}

/** A server that does not know records has decided a check. */
export function decodeRecorded(answer: Json): Recorded {
  return whole(() => {
    if (typeof answer.recorded !== 'boolean') throw new TypeError('no record');
    const charged = answer.tiers.map((tier: Json) => [number(tier.rule_id), number(tier.charged) ?? 0]);
    return {
      recorded: answer.recorded,
      charged: new Map<number, number>(charged.filter(([, amount]: [number, number]) => amount > 0)),
    };
  });
}

export function decodeReport(answer: Json): boolean {
  return whole(() => (number(answer.accepted) ?? 0) > 0);
}

function whole<T>(read: () => T): T {
  try {
    return read();
  } catch (error) {
    throw error instanceof TypeError ? problem(200, null) : error; // a member has another type
  }
}

export function problem(status: number, answer: Json): SluiceError {
  if (typeof answer?.type !== 'string' || status < 400) {
    return status >= 500
      ? new SluiceError('unavailable', 'The server failed.', { status })
      : new SluiceError('protocol', 'This is no answer of a Sluice server; is the URL right?', { status });
  }
  const detail: string = answer.detail || answer.title || '';
  const errors: Json[] = Array.isArray(answer.errors) ? answer.errors : [];
  const fields: FieldError[] = errors
    .filter((error) => typeof error === 'object' && error !== null)
    .map(({ pointer, detail }) => ({ pointer: String(pointer), detail: String(detail) }));
  const more = { status, type: answer.type, requestId: answer.request_id ?? '', fields };
  if (status === 401 || status === 403) return new SluiceError('key', detail, more);
  if (status >= 500 || status === 429 || status === 408) return new SluiceError('unavailable', detail, more);
  if (status === 400 || status === 413 || status === 422) return new SluiceError('request', detail, more);
  return new SluiceError('protocol', detail, more);
}

export function undecided(error: SluiceError): Decision {
  return { ...(decode({ allowed: true, retry_after_ms: 0 }, 200) as Decision), source: 'failure_mode', error };
}
