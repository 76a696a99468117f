import { auditEntry, fakeServer, key, page, plan, rule, session, tenant } from './fake';

export const acme = '/api/v1/tenants/acme';
export const member = {
  account_id: '1',
  email: 'ada@example.com',
  name: 'Ada',
  role: 'owner',
  disabled: false,
  proven: true,
  granted_by: null,
  second_factor: false,
  created_at: '2026-11-21T06:00:00Z',
  version: 4,
};
export const invitation = {
  invitation_id: '5',
  email: 'grace@example.com',
  role: 'editor',
  invited_by: 'ada@example.com',
  created_at: '2026-11-21T06:00:00Z',
  expires_at: '2026-11-28T06:00:00Z',
  mail: null,
};

export const loud = {
  alert_id: '4',
  name: 'Loud',
  kind: 'denials',
  rule_id: '12',
  per: 'rule',
  threshold: 1000,
  window_minutes: 5,
  format: 'webhook',
  url: 'https://hooks.example.com/',
  email: null,
  is_active: true,
  rule_removed: false,
  raised_at: null,
  silence: null,
  version: 1,
};

export function preview(more: object = {}) {
  const span = { since: '2026-11-14T06:00:00Z', until: '2026-11-21T06:00:00Z', counted_since: '2026-11-14T06:01:00Z' };
  return { ...span, looked_back_to: null, fired: 0, firings: [], ...more };
}

export function server(more: Record<string, unknown>, role: 'viewer' | 'editor' | 'owner' = 'owner') {
  return fakeServer({
    'GET /api/v1/session': session(role),
    [`GET ${acme}`]: () => ({ json: tenant({ role }), headers: { ETag: '"1"' } }),
    [`GET ${acme}/plans`]: page([plan('free'), plan('pro')]),
    [`GET ${acme}/rules`]: page([rule()]),
    [`GET ${acme}/api-keys`]: page([key()]),
    [`GET ${acme}/members`]: page([member]),
    [`GET ${acme}/invitations`]: page([invitation]),
    [`GET ${acme}/alerts`]: page([]),
    [`POST ${acme}/alerts/preview`]: preview(),
    [`GET ${acme}/audit`]: page([auditEntry()]),
    [`GET ${acme}/audit-webhook`]: () => ({ status: 204 }),
    [`GET ${acme}/audit/812`]: auditEntry(),
    ...more,
  });
}
