import type { Override } from '~/api/types';
import { fakeServer, page, plan, rule, session } from './fake';
import { bucket, user, violation } from './traffic';

export const base = '/api/v1/tenants/acme';
export const its = `${base}/users/42`;
export const tag = { ETag: '"0"' };

export function userServer(more: Record<string, unknown> = {}, overrides: () => Override[] = () => []) {
  return fakeServer({
    'GET /api/v1/session': session(),
    [`GET ${base}/plans`]: page([plan('free', { is_default: true }), plan('pro')]),
    [`GET ${base}/rules`]: page([
      rule({ plan: 'free' }),
      rule({ rule_id: '13', plan: 'pro', rate_per_second: 100, burst_capacity: 500 }),
      rule({ rule_id: '14', plan: null, key_pattern: 'endpoint:/api/search', scope: 'endpoint' }),
    ]),
    [`GET ${its}`]: () => ({
      json: user({ overrides: overrides(), recent_violations: [violation()] }),
      headers: tag,
    }),
    [`GET ${its}/story`]: page([]),
    [`GET ${its}/buckets`]: { items: [bucket()], has_more: false },
    [`GET ${base}/crossings`]: page([]),
    [`GET ${its}/usage`]: { items: [], as_of: '2026-11-26T17:06:12Z' },
    [`GET ${base}/overrides`]: () => ({ json: page(overrides()) }),
    ...more,
  });
}
