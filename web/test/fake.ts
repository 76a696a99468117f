import { waitFor } from '@testing-library/react';
import { vi } from 'vitest';
import type { ProblemDocument } from '~/api/problem';
import type { components } from '~/api/schema';
import type {
  Account,
  AuditEntry,
  Busiest,
  Capacity,
  CapacityThing,
  Key,
  Plan,
  Present,
  Rule,
  SecurityEvent,
  Session,
  Tenant,
} from '~/api/types';
import { mistakeOf } from './contract';
import { busiest, present } from './traffic';

export interface Reply {
  status?: number;
  json?: unknown;
  events?: string;
  csv?: string;
  headers?: Record<string, string>;
}
/** How the answers of the present test differ from api/openapi.yaml; setup.ts fails the test for them. */
export const broken: string[] = [];

type Handler = (request: {
  path: string;
  query: URLSearchParams;
  body: unknown;
  headers: Headers;
}) => Reply | Promise<Reply>;

const everywhere: Record<string, Handler | unknown> = {
  'GET /api/v1/tenants/acme': () => ({ json: tenant(), headers: { ETag: '"1"' } }),
  'GET /api/v1/tenants/acme/overrides': { items: [], next_cursor: null },
  'POST /api/v1/tenants/acme/effect': effect(),
  'GET /api/v1/tenants/acme/scheduled-changes': { items: [], next_cursor: null },
  'GET /api/v1/tenants/acme/stats/present': ({ query }: { query: URLSearchParams }) => ({
    json: present(query.get('by') as Present['by'], {}),
  }),
  'GET /api/v1/tenants/acme/stats/busiest': ({ query }: { query: URLSearchParams }) => ({
    json: busiest(query.get('by') as Busiest['by'], {}),
  }),
  'GET /api/v1/tenants/acme/capacity': () => ({ json: capacity(), headers: { ETag: '"0"' } }),
  'GET /api/v1/sign-in': { mail: false, passwords: true, providers: [] },
};

/**
 * Stands in for the server in component tests: "GET /api/v1/session" → its answer. A request that the test
 * did not foresee fails it.
 */
export function fakeServer(handlers: Record<string, Handler | unknown>) {
  const requests: { method: string; path: string; body: unknown; headers: Headers }[] = [];
  vi.stubGlobal('fetch', async (request: Request, { signal }: RequestInit = {}) => {
    signal?.throwIfAborted(); // a repeated request of an earlier test must not reach this one
    const { pathname, searchParams } = new URL(request.url);
    const text = await request.text();
    const isJSON = request.headers.get('Content-Type')?.startsWith('application/json');
    const body = isJSON && text ? JSON.parse(text) : text;
    requests.push({ method: request.method, path: pathname, body, headers: request.headers });
    const handler = { ...everywhere, ...handlers }[`${request.method} ${pathname}`];
    if (handler === undefined) throw new Error(`the test foresees no ${request.method} ${pathname}`);
    const asked = { path: pathname, query: searchParams, body, headers: request.headers };
    const reply: Reply = typeof handler === 'function' ? await (handler as Handler)(asked) : { json: handler };
    const { status = 200, json, events, csv, headers = {} } = reply;
    if (events !== undefined || csv !== undefined) {
      const type = csv === undefined ? 'text/event-stream' : 'text/csv';
      return new Response(events ?? csv, { headers: { 'Content-Type': type } });
    }
    if (json !== undefined && status !== 204) {
      const mistake = mistakeOf(request.method, pathname, status, JSON.parse(JSON.stringify(json)));
      if (mistake) broken.push(mistake);
    }
    const type = status >= 400 ? 'application/problem+json' : 'application/json';
    return new Response([204, 304].includes(status) ? null : JSON.stringify(json), {
      status,
      headers: { 'Content-Type': type, ...headers },
    });
  });
  return requests;
}

/** The first request of a method to a path that ends so, once there is one. */
export function requested(requests: ReturnType<typeof fakeServer>, method: string, end = '') {
  return waitFor(() => {
    const found = requests.find((one) => one.method === method && one.path.endsWith(end));
    if (!found) throw new Error(`no ${method} was sent to …${end}`);
    return found;
  });
}

/** The effect of changed limits; by default of a tenant that records nothing. */
export function effect(more: Partial<components['schemas']['Effect']> = {}): components['schemas']['Effect'] {
  const none = { value: 0, error: 0 };
  return {
    is_recording: false,
    since: null,
    until: null,
    none_since: null,
    note: null,
    checks: none,
    share: 1,
    denied_then: none,
    denied_now: none,
    newly_denied: none,
    no_longer_denied: none,
    bound_by: null,
    rules: [],
    users: [],
    left_out: [],
    ...more,
  };
}

export function problem(status: number, kind: string, more: Partial<ProblemDocument> = {}): Reply {
  const type = kind.startsWith('https:') ? kind : `urn:sluice:problem:${kind}`;
  return { status, json: { type, title: kind, detail: kind, request_id: 'req-1', ...more, status } };
}

const at = '2026-11-21T06:00:00Z';

export function account(more: Partial<Account> = {}): Account {
  return {
    account_id: '1',
    email: 'ada@example.com',
    name: 'Ada',
    platform_admin: false,
    disabled: false,
    proven: true,
    second_factor: false,
    created_at: at,
    version: 1,
    ...more,
  };
}

export function session(role: 'viewer' | 'editor' | 'owner' = 'owner'): Session {
  return {
    session_id: '1',
    account: account(),
    memberships: [
      {
        tenant: { slug: 'acme', name: 'Acme' },
        role,
        suspended: false,
        enforcement: 'on',
        second_factor_required: false,
      },
    ],
    has_more_memberships: false,
    second_factor_required: false,
    two_factors: false,
    check_url: 'https://limits.example.com',
    has_password: true,
    sign_out_url: null,
  };
}

/** Everything at a hundredth of its default, but for what the test says. */
export function capacity(more: Partial<Record<CapacityThing, { held: number; allowed: number }>> = {}): Capacity {
  const defaults: Record<CapacityThing, number> = {
    plans: 1000,
    rules: 10_000,
    overrides: 100_000,
    users: 1_000_000,
    api_keys: 1000,
    alerts: 100,
    members: 1000,
  };
  const items = Object.entries(defaults).map(([name, allowed]) => {
    const thing = name as CapacityThing;
    const one = { thing, held: allowed / 100, allowed, default: allowed, is_default: true };
    return more[thing] ? { ...one, ...more[thing], is_default: more[thing].allowed === allowed } : one;
  });
  return { items, version: 0 };
}

export function plan(name: string, more: Partial<Plan> = {}): Plan {
  return { name, description: '', rules: 1, users: 10, is_default: false, position: 0, version: 1, ...more };
}

export function rule(more: Partial<Rule> = {}): Rule {
  return {
    rule_id: '12',
    key_pattern: 'user:{user_id}',
    name: '',
    plan: 'pro',
    scope: 'user',
    meter: 'requests',
    rate: '10/second',
    rate_per_second: 10,
    rate_unit: 'second',
    burst_capacity: 50,
    algorithm: 'token_bucket',
    window: null,
    window_zone: null,
    window_start_day: null,
    refill_interval: null,
    max_hold: null,
    notify_at: [],
    adapt: null,
    limit_text: '10 per second, bursts to 50',
    mode: 'enforce',
    action: 'limit',
    charge: 'before',
    failure_mode: null,
    lease: 'auto',
    is_active: true,
    expires_at: null,
    description: '',
    candidate_for: null,
    version: 3,
    in_force_since: at,
    created_at: at,
    updated_at: at,
    ...more,
  };
}

export function tenant(more: Partial<Tenant> = {}): Tenant {
  return {
    slug: 'acme',
    name: 'Acme',
    default_plan: 'free',
    suspended: false,
    enforcement: 'on',
    settings: {
      retry_jitter_percent: 0,
      ipv4_prefix: 32,
      ipv6_prefix: 64,
      failure_mode: 'local',
      fixed_rates: false,
      record_days: 0,
      require_second_factor: false,
    },
    role: 'owner',
    created_at: at,
    version: 1,
    ...more,
  };
}

export function key(more: Partial<Key> = {}): Key {
  return {
    key_id: 'k3Jx9mQ2',
    name: 'gateway',
    permissions: ['check'],
    networks: [],
    created_by: { kind: 'account', id: '1', name: 'ada@example.com' },
    creator_left: false,
    kept_at: null,
    created_at: at,
    expires_at: null,
    revoked_at: null,
    last_used_at: null,
    version: 9,
    ...more,
  };
}

export function auditEntry(more: Partial<AuditEntry> = {}): AuditEntry {
  return {
    audit_id: '812',
    change_id: '812',
    at,
    actor: { kind: 'account', id: '1', name: 'ada@example.com', act: '', request_id: 'req-1' },
    action: 'update',
    object: { kind: 'rule', id: '12' },
    before: { key_pattern: 'user:{user_id}', rate_per_second: 10, rate_unit: 'second' },
    after: { key_pattern: 'user:{user_id}', rate_per_second: 20, rate_unit: 'second' },
    ...more,
  };
}

export function page<T>(items: T[]): { items: T[]; next_cursor: null } {
  return { items, next_cursor: null };
}

export function securityEvent(more: Partial<SecurityEvent> = {}): SecurityEvent {
  return {
    event_id: '1',
    at,
    count: 1,
    kind: 'denied',
    succeeded: false,
    account_id: null,
    who: '',
    typed: '',
    key_id: '',
    tenant: '',
    ip: '203.0.113.66',
    user_agent: 'curl/8.5.0',
    detail: '',
    request_id: 'r',
    ...more,
  };
}
