import { isMeter } from './domain/meter';

/** The URL parameters of each screen. Invalid values are left out. */
type Raw = Record<string, unknown>;
type Readers = Record<string, (value: unknown) => unknown>;
type Read<R extends Readers> = { [Name in keyof R]?: Exclude<ReturnType<R[Name]>, undefined> };

function parameters<R extends Readers>(readers: R) {
  return (raw: Raw): Read<R> => {
    const read = Object.entries(readers).map(([name, reader]) => [name, reader(raw[name])] as const);
    return Object.fromEntries(read.filter(([, value]) => value !== undefined)) as Read<R>;
  };
}

function text(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined;
}

function number(value: unknown): number | undefined {
  const parsed = Number(value);
  return value !== undefined && value !== '' && Number.isFinite(parsed) ? parsed : undefined;
}

function id(value: unknown): string | undefined {
  return /^[1-9][0-9]{0,17}$/.test(String(value)) ? String(value) : undefined;
}

function flag(value: unknown): true | undefined {
  return value === 'true' || value === true ? true : undefined;
}

function oneOf<const T extends string>(...known: T[]) {
  return (value: unknown): T | undefined => known.find((one) => one === value);
}

function localPath(value: unknown): string | undefined {
  const path = text(value);
  return path && /^\/(?!\/)[^\\\s\p{Cc}]*$/u.test(path) ? path : undefined;
}

/** "15m", "1h", "24h", or two moments: "2026-11-21T06:00:00Z~2026-11-21T07:00:00Z". */
const time = { range: text };
const dialog = oneOf('schedule');
const meter = (value: unknown) => text(isMeter(String(value)) && value);
const scope = oneOf('user', 'endpoint', 'ip', 'global');

export const none = parameters({});

export const overviewSearch = parameters({ ...time, meter });

export const plansSearch = parameters({ q: text, scope, open: dialog });
export type PlansSearch = ReturnType<typeof plansSearch>;

export const ruleSearch = parameters({ open: dialog });

export const rulesSearch = parameters({
  q: text,
  scope: text,
  plan: text,
  meter: text,
  mode: text,
  state: text,
  sort: text,
});
export type RulesSearch = ReturnType<typeof rulesSearch>;

/** `first`: the first rule of a new tenant, which goes on at the overview. */
export const newRuleSearch = parameters({ from: id, first: flag });

/** A limit as "5/second" and a burst; the range may be "yesterday". */
export const replaysSearch = parameters({ ...time, open: oneOf('new'), rule: id, rate: text, burst: number });
export type ReplaysSearch = ReturnType<typeof replaysSearch>;

export const violationsSearch = parameters({
  ...time,
  user: text,
  rule: id,
  scope,
  endpoint: text,
  ip: text,
  plan: text,
  mode: oneOf('enforce', 'shadow'),
  live: flag,
  group: oneOf('user', 'ip', 'network', 'endpoint', 'rule'),
  open: text,
  export: id,
});
export type ViolationsSearch = ReturnType<typeof violationsSearch>;

export const userSearch = parameters({ ...time, open: text, override: id, erasure: text, export: id });
export type UserSearch = ReturnType<typeof userSearch>;

export const usersSearch = parameters({ prefix: text, plan: text, export: id });
export type UsersSearch = ReturnType<typeof usersSearch>;

export const overridesSearch = parameters({ prefix: text, rule: id, ends: oneOf('soon', 'expired') });
export type OverridesSearch = ReturnType<typeof overridesSearch>;

/** Attributes are "org=acme&model=gpt-x", the costs of other meters "input_tokens=1200". */
export const trySearch = parameters({
  user: text,
  plan: text,
  endpoint: text,
  method: text,
  ip: text,
  cost: text,
  costs: text,
  attributes: text,
});
export type TrySearch = ReturnType<typeof trySearch>;

export const settingsSearch = parameters({
  ...time,
  actor: text,
  action: text,
  kind: text,
  object: text,
  ip: text,
  change: id,
  entry: id,
  export: id,
  gateway: oneOf('envoy'),
});
export type SettingsSearch = ReturnType<typeof settingsSearch>;

export const securitySearch = parameters({ ...time, kind: text, email: text, ip: text, tenant: text });
export type SecuritySearch = ReturnType<typeof securitySearch>;

export const findSearch = parameters({ q: text });
export type FindSearch = ReturnType<typeof findSearch>;

/** `failed`: why signing in at a provider failed. The step is "code" if the second factor is next. */
export const signInSearch = parameters({ next: localPath, failed: text, provider: text, step: text });

export const forgotSearch = parameters({ tenant: text });

export const confirmedSearch = parameters({ next: localPath, failed: text, provider: text });

export const profileSearch = parameters({ linked: text, failed: text, provider: text });

/** As strings: the router’s parser would round a user id of twenty digits. */
export function parseSearch(query: string): Record<string, string> {
  return Object.fromEntries(new URLSearchParams(query));
}

export function stringifySearch(search: Raw): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(search)) {
    if (value !== undefined && value !== null) query.set(name, String(value));
  }
  const text = query.toString();
  return text && `?${text}`;
}
