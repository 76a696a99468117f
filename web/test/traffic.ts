import type { components } from '~/api/schema';
import type {
  Bucket,
  Busiest,
  Crossing,
  Override,
  Present,
  ProcessStatus,
  ScheduledChange,
  Series,
  Status,
  Summary,
  TenantStatus,
  Top,
  TopItem,
  User,
  Verdicts,
  Violation,
  ViolationDetail,
  ViolationSeries,
} from '~/api/types';

const at = '2026-11-21T06:00:00Z';

export function violation(more: Partial<Violation> = {}): Violation {
  return {
    violation_id: '1795175491123456-17',
    requested_at: '2026-11-21T06:00:31.126Z',
    last_at: '2026-11-21T06:00:31.920Z',
    count: 11,
    rule_id: '12',
    rule_version: 3,
    bucket_key: '12:42',
    scope: 'user',
    mode: 'enforce',
    reason: 'limit_exceeded',
    key_pattern: 'user:{user_id}',
    rate_per_second: 10,
    burst_capacity: 50,
    algorithm: 'token_bucket',
    limit_text: '10 per second, bursts to 50',
    meter: 'requests',
    user_id: '42',
    ip_address: '203.0.113.9',
    endpoint: '/api/search',
    method: 'GET',
    plan: 'free',
    cost: 1,
    tokens_at_time: 0.65,
    queue_ms: null,
    retry_after_ms: 35,
    ...more,
  };
}

export function verdicts(allowed: number, denied: number, more: Partial<Verdicts> = {}): Verdicts {
  return { allowed, denied, bypassed: 0, degraded: 0, cost: allowed, ...more };
}

export function series(points: Verdicts[]): Series {
  const begin = Date.parse(at);
  const sum = (of: keyof Verdicts) => points.reduce((total, point) => total + point[of], 0);
  return {
    from: at,
    until: new Date(begin + points.length * 60_000).toISOString(),
    step_seconds: 60,
    points: points.map((point, index) => ({ at: new Date(begin + index * 60_000).toISOString(), ...point })),
    total: verdicts(sum('allowed'), sum('denied'), { degraded: sum('degraded') }),
  };
}

/** How many checks were denied in each minute, of those that filters chose. */
export function violationSeries(checks: number[]): ViolationSeries {
  const begin = Date.parse(at);
  return {
    from: at,
    until: new Date(begin + checks.length * 60_000).toISOString(),
    step_seconds: 60,
    points: checks.map((count, index) => ({
      at: new Date(begin + index * 60_000).toISOString(),
      checks: count,
    })),
    total: checks.reduce((sum, count) => sum + count, 0),
    exact: false,
    looked_back_to: null,
  };
}

export function summary(total: Verdicts, more: Partial<Summary> = {}): Summary {
  const all = total.allowed + total.denied + total.bypassed;
  return {
    from: at,
    until: '2026-11-21T07:00:00Z',
    total,
    share_denied: all === 0 ? null : total.denied / all,
    before: verdicts(0, 0),
    share_denied_before: null,
    shadow_denied: 0,
    shadow_rules: [],
    meters: [],
    ...more,
  };
}

export function top(by: Top['by'], items: Partial<TopItem>[]): Top {
  return {
    by,
    from: at,
    until: at,
    unattributed: 0,
    looked_back_to: null,
    items: items.map((item) => ({ value: '42', denied: 1, checks: null, last_at: at, rule: null, ...item })),
  };
}

/** Denied a minute, of so many in all. */
export function present(
  by: Present['by'],
  rates: Record<string, number>,
  perMinute = 0,
  more: Partial<Present['items'][number]> = {},
): Present {
  const items = Object.entries(rates).map(([value, per_minute]) => ({
    value,
    per_minute,
    per_minute_before: 100,
    rule: null,
    ...more,
  }));
  return { by, from: at, until: at, items, per_minute: perMinute, unattributed_per_minute: 0 };
}

/** Checks a minute, and before, of so many in all. */
export function busiest(
  by: Busiest['by'],
  rates: Record<string, [now: number, before: number]>,
  perMinute = 0,
  perMinuteBefore = 0,
): Busiest {
  const items = Object.entries(rates).map(([value, [per_minute, per_minute_before]]) => ({
    value,
    per_minute,
    per_minute_before,
  }));
  return { by, from: at, until: at, items, per_minute: perMinute, per_minute_before: perMinuteBefore };
}

export function process(more: Partial<ProcessStatus> = {}): ProcessStatus {
  return {
    process_id: '3f2a91c07b5de604',
    name: 'api-1',
    version: '1.4.0',
    started_at: at,
    reported_at: at,
    rules_loaded: true,
    rules: 10,
    rules_age_ms: 410,
    database: 'up',
    redis: 'up',
    redis_down: [],
    checks_per_second: 12,
    degraded_share: 0,
    ...more,
  };
}

export function tenantStatus(more: Partial<TenantStatus> = {}): TenantStatus {
  return {
    at,
    answering: 'up',
    redis: 'up',
    rules_age_ms: 410,
    checks_per_second: 12,
    share_denied: 0.02,
    degraded_share: 0,
    ...more,
  };
}

export function status(processes: ProcessStatus[], more: Partial<Status> = {}): Status {
  return {
    at,
    database: { state: 'up', latency_ms: 0.4 },
    admin: { version: '1.4.0', started_at: at, rules_loaded: true, rules_age_ms: 410, redis: 'up' },
    processes,
    ...more,
  };
}

export function bucket(more: Partial<Bucket> = {}): Bucket {
  return {
    bucket_key: '12:42',
    rule_id: '12',
    key_pattern: 'user:{user_id}',
    name: '',
    meter: 'requests',
    scope: 'user',
    mode: 'enforce',
    plan: 'free',
    tokens: 20,
    burst_capacity: 50,
    rate_per_second: 10,
    rate_unit: 'second',
    algorithm: 'token_bucket',
    limit_text: '10 per second, bursts to 50',
    window: null,
    overridden: false,
    reset_after_ms: 3000,
    source: 'user',
    ...more,
  };
}

export function quota(more: Partial<Bucket> = {}): Bucket {
  return bucket({
    bucket_key: '15:42',
    rule_id: '15',
    name: 'monthly',
    tokens: 1988,
    burst_capacity: 10_000,
    rate_per_second: 0,
    algorithm: 'fixed_window',
    limit_text: '10,000 per month, Europe/Berlin',
    window: { starts_at: '2026-10-31T23:00:00Z', ends_at: '2026-11-30T23:00:00Z', zone: 'Europe/Berlin' },
    reset_after_ms: 800_000_000,
    ...more,
  });
}

export function crossing(more: Partial<Crossing> = {}): Crossing {
  return {
    crossing_id: '51',
    rule_id: '15',
    key_pattern: 'user:{user_id}',
    name: 'monthly',
    meter: 'requests',
    mode: 'enforce',
    subject: '42',
    user_id: '42',
    share: 80,
    used: 8000,
    burst_capacity: 10_000,
    window_starts_at: '2026-10-31T23:00:00Z',
    window_ends_at: '2026-11-30T23:00:00Z',
    crossed_at: '2026-11-12T14:02:07.120034Z',
    ...more,
  };
}

export function override(more: Partial<Override> = {}): Override {
  return {
    rule_id: '12',
    user_id: '42',
    rate: '100/second',
    rate_per_second: 100,
    rate_unit: 'second',
    burst_capacity: 500,
    reason: 'migration week',
    expires_at: '2027-01-31T00:00:00Z',
    expired: false,
    in_force_since: at,
    version: 31,
    ...more,
  };
}

export function user(more: Partial<User> = {}): User {
  return {
    user_id: '42',
    known: true,
    plan: 'free',
    plan_source: 'tenant',
    sent_plan: null,
    overrides: [],
    has_more_overrides: false,
    recent_violations: [],
    version: 0,
    ...more,
  };
}

export function exported(more: Partial<components['schemas']['Export']> = {}): components['schemas']['Export'] {
  return {
    export_id: '7',
    what: 'user_data',
    name: 'user-42.json',
    requested_at: '2026-11-20T12:00:00Z',
    finished_at: null,
    expires_at: null,
    rows: 1200,
    error: '',
    next_try_at: null,
    file: null,
    ...more,
  };
}

export function readyExport(more: Partial<components['schemas']['Export']> = {}) {
  return exported({
    finished_at: '2026-11-20T12:00:09Z',
    expires_at: '2126-11-21T12:00:09Z',
    file: '/api/v1/tenants/acme/exports/7/file',
    ...more,
  });
}

export function scheduledChange(more: Partial<ScheduledChange> = {}): ScheduledChange {
  return {
    change_id: '7',
    title: 'user:{user_id} on free',
    rules: [{ rule_id: '1', change: { burst_capacity: 80 }, failure: null }],
    starts_at: '2026-11-23T09:00:00Z',
    ends_at: '2026-11-27T17:00:00Z',
    state: 'waiting',
    requested_at: at,
    requested_by: 'ada@example.com',
    requester_account_id: '1',
    applied_at: null,
    ended_at: null,
    failure: null,
    ...more,
  };
}

export function detailed(shown: Violation, more: Partial<ViolationDetail> = {}): ViolationDetail {
  return { violation: shown, rule: null, denied_in_minute: 1, beside: [], ...more };
}
