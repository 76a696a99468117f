import type { Timeline } from '~/api/types';
import { effect, page, plan, rule, session } from './fake';
import { series, top } from './traffic';

/* A live rule and a shadow rule beside it, and the pages that show them. */

export const live = rule({ rule_id: '1', plan: 'free' });
export const shadow = rule({ rule_id: '2', plan: 'free', name: 'half', mode: 'shadow', rate_per_second: 5 });

export const noSimulation: Timeline = {
  first_denial_ms: null,
  longest_wait_ms: 0,
  longest_delay_ms: 0,
  decisions: [],
  tiers: [],
};

export const world = (role: 'viewer' | 'editor' = 'editor', shown = live) => ({
  'GET /api/v1/session': session(role),
  'GET /api/v1/tenants/acme/plans': page([plan('free'), plan('pro')]),
  'GET /api/v1/tenants/acme/rules': page([live, shadow]),
  [`GET /api/v1/tenants/acme/rules/${shown.rule_id}`]: () => ({ json: shown, headers: { ETag: '"3"' } }),
  [`GET /api/v1/tenants/acme/rules/${shown.rule_id}/overrides`]: page([]),
  'GET /api/v1/tenants/acme/audit': page([]),
  'GET /api/v1/tenants/acme/stats/series': { ...series([]), step_seconds: 900 },
  'GET /api/v1/tenants/acme/stats/top': top('rule', []),
  'GET /api/v1/tenants/acme/alerts': page([]),
  'POST /api/v1/tenants/acme/effect': effect({
    is_recording: true,
    since: '2026-11-01T09:00:00Z',
    until: '2026-11-01T21:00:00Z',
    checks: { value: 1000, error: 0 },
    denied_then: { value: 5, error: 0 },
    denied_now: { value: 25, error: 0 },
    newly_denied: { value: 20, error: 0 },
    users: [{ user_id: '42', ip: null, newly_denied: 20, no_longer_denied: 0 }],
  }),
  'POST /api/v1/tenants/acme/simulate': noSimulation,
});
