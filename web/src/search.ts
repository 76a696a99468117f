/**
 * The URL parameters of each screen: time range, filters, sort. Each function reads the raw query and returns
 * valid values. Invalid ones are left out.
 */
type Raw = Record<string, unknown>;

/** "15m", "1h", "24h", "7d", "30d", or two moments "2026-11-21T06:00:00Z~2026-11-21T07:00:00Z". */
export interface TimeSearch {
  range?: string;
}

export interface PlansSearch {
  q?: string;
  /** What the reader came to do. */
  open?: 'schedule';
  scope?: (typeof scopes)[number];
}

/** A rule’s page; it can begin with a dialog. */
export interface RuleSearch {
  open?: 'schedule';
}

export interface RulesSearch {
  q?: string;
  scope?: string;
  plan?: string;
  mode?: string;
  state?: string;
  sort?: string;
}

/** A new rule; it can start as a copy, or be the first step of a new tenant, which goes on at the overview. */
export interface NewRuleSearch {
  from?: number;
  first?: true;
}

/** A replay to start: its rule, its limit as "5/second" and a burst, and its time: "yesterday", or as in TimeSearch. */
export interface ReplaysSearch extends TimeSearch {
  open?: 'new';
  rule?: number;
  rate?: string;
  burst?: number;
}

export interface ViolationsSearch extends TimeSearch {
  user?: string;
  rule?: number;
  scope?: (typeof scopes)[number];
  endpoint?: string;
  ip?: string;
  plan?: string;
  mode?: (typeof modes)[number];
  live?: boolean;
  /** The denials are shown as a ranking by this. */
  group?: (typeof groups)[number];
  /** The violation whose panel is open. */
  open?: string;
}

export interface UserSearch extends TimeSearch {
  /** The violation whose panel is open. */
  open?: string;
  /** The rule whose override is edited. */
  override?: number;
  /** The receipt of an erasure that is shown. */
  erasure?: string;
}

export interface UsersSearch {
  prefix?: string;
  plan?: string;
}

export interface OverridesSearch {
  prefix?: string;
  rule?: number;
  ends?: (typeof ends)[number];
}

/** The fields of the check as typed. The server validates them. */
export interface TrySearch {
  user?: string;
  plan?: string;
  endpoint?: string;
  method?: string;
  ip?: string;
  cost?: string;
  /** "org=acme&model=gpt-x" */
  attributes?: string;
}

/** The filters of the audit log and the security log, and the open entry; how the mapping of gateways is edited. */
export interface SettingsSearch extends TimeSearch {
  actor?: string;
  action?: string;
  kind?: string;
  object?: string;
  ip?: string;
  change?: number;
  entry?: number;
  /** Which mapping of gateways is shown; the one for HTTP by default. */
  gateway?: 'envoy';
}

/** The filters of the security log. */
export interface SecuritySearch extends TimeSearch {
  kind?: string;
  email?: string;
  ip?: string;
  tenant?: string;
}

/** A search in a list of the platform. */
export interface FindSearch {
  q?: string;
}

function text(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined;
}

function number(value: unknown): number | undefined {
  const parsed = Number(value);
  return value !== undefined && value !== '' && Number.isFinite(parsed) ? parsed : undefined;
}

function oneOf<T extends string>(value: unknown, known: readonly T[]): T | undefined {
  return known.find((one) => one === value);
}

const dialogs = ['schedule'] as const;
const scopes = ['user', 'endpoint', 'ip', 'global'] as const;
const modes = ['enforce', 'shadow'] as const;
const groups = ['user', 'ip', 'network', 'endpoint', 'rule'] as const;
const ends = ['soon', 'expired'] as const;

/** Drops undefined values, so that the URL stays short. */
function given<T extends object>(search: T): T {
  return Object.fromEntries(Object.entries(search).filter(([, value]) => value !== undefined)) as T;
}

export function overviewSearch(raw: Raw): TimeSearch {
  return given({ range: text(raw.range) });
}

export function plansSearch(raw: Raw): PlansSearch {
  return given({ q: text(raw.q), scope: oneOf(raw.scope, scopes), open: oneOf(raw.open, dialogs) });
}

export function ruleSearch(raw: Raw): RuleSearch {
  return given({ open: oneOf(raw.open, dialogs) });
}

export function rulesSearch(raw: Raw): RulesSearch {
  return given({
    q: text(raw.q),
    scope: text(raw.scope),
    plan: text(raw.plan),
    mode: text(raw.mode),
    state: text(raw.state),
    sort: text(raw.sort),
  });
}

export function newRuleSearch(raw: Raw): NewRuleSearch {
  return given({
    from: number(raw.from),
    first: raw.first === 'true' || raw.first === true ? true : undefined,
  });
}

export function replaysSearch(raw: Raw): ReplaysSearch {
  return given({
    open: oneOf(raw.open, ['new'] as const),
    rule: number(raw.rule),
    rate: text(raw.rate),
    burst: number(raw.burst),
    range: text(raw.range),
  });
}

export function violationsSearch(raw: Raw): ViolationsSearch {
  return given({
    range: text(raw.range),
    user: text(raw.user),
    rule: number(raw.rule),
    scope: oneOf(raw.scope, scopes),
    endpoint: text(raw.endpoint),
    ip: text(raw.ip),
    mode: oneOf(raw.mode, modes),
    plan: text(raw.plan),
    live: raw.live === 'true' || raw.live === true ? true : undefined,
    group: oneOf(raw.group, groups),
    open: text(raw.open),
  });
}

export function userSearch(raw: Raw): UserSearch {
  return given({
    range: text(raw.range),
    open: text(raw.open),
    override: number(raw.override),
    erasure: text(raw.erasure),
  });
}

export function usersSearch(raw: Raw): UsersSearch {
  return given({ prefix: text(raw.prefix), plan: text(raw.plan) });
}

export function overridesSearch(raw: Raw): OverridesSearch {
  return given({ prefix: text(raw.prefix), rule: number(raw.rule), ends: oneOf(raw.ends, ends) });
}

export function trySearch(raw: Raw): TrySearch {
  return given({
    user: text(raw.user),
    plan: text(raw.plan),
    endpoint: text(raw.endpoint),
    method: text(raw.method),
    ip: text(raw.ip),
    cost: text(raw.cost),
    attributes: text(raw.attributes),
  });
}

export function settingsSearch(raw: Raw): SettingsSearch {
  return given({
    range: text(raw.range),
    actor: text(raw.actor),
    action: text(raw.action),
    kind: text(raw.kind),
    object: text(raw.object),
    ip: text(raw.ip),
    change: number(raw.change),
    entry: number(raw.entry),
    gateway: oneOf(raw.gateway, ['envoy'] as const),
  });
}

export function securitySearch(raw: Raw): SecuritySearch {
  return given({
    range: text(raw.range),
    kind: text(raw.kind),
    email: text(raw.email),
    ip: text(raw.ip),
    tenant: text(raw.tenant),
  });
}

export function findSearch(raw: Raw): FindSearch {
  return given({ q: text(raw.q) });
}

/** Where to go after signing in, and why signing in at a provider failed. */
export interface SignInSearch {
  next?: string;
  failed?: string;
  provider?: string;
  /** code: the provider was the first step, and the second factor is the next. */
  step?: string;
}

export function signInSearch(raw: Raw): SignInSearch {
  return given({
    next: localPath(raw.next),
    failed: text(raw.failed),
    provider: text(raw.provider),
    step: text(raw.step),
  });
}

/** The tenant at whose sign-in somebody forgot a password. */
export interface ForgotSearch {
  tenant?: string;
}

export function forgotSearch(raw: Raw): ForgotSearch {
  return given({ tenant: text(raw.tenant) });
}

/** What became of signing in again at a provider. */
export interface ConfirmedSearch {
  next?: string;
  failed?: string;
  provider?: string;
}

export function confirmedSearch(raw: Raw): ConfirmedSearch {
  return given({ next: localPath(raw.next), failed: text(raw.failed), provider: text(raw.provider) });
}

/** Only a local path: a link must not redirect people to another site. Browsers skip tabs and line breaks. */
function localPath(value: unknown): string | undefined {
  const path = text(value);
  return path && /^\/(?!\/)[^\\\s\p{Cc}]*$/u.test(path) ? path : undefined;
}

/** What became of linking an identity. */
export interface ProfileSearch {
  linked?: string;
  failed?: string;
  provider?: string;
}

export function profileSearch(raw: Raw): ProfileSearch {
  return given({ linked: text(raw.linked), failed: text(raw.failed), provider: text(raw.provider) });
}

/** Reads the query as strings. The router’s parser would round a user id of twenty digits. */
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
