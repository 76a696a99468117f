import { screen, within } from '@testing-library/react';
import { expect, test } from 'vitest';
import { capacity, fakeServer, page, plan, rule, session } from '../../../test/fake';
import { open } from '../../../test/render';
import { series } from '../../../test/traffic';

test('a rule’s page has the alerts that watch it, and makes one on it', async () => {
  const watched = rule({ rule_id: '12' });
  const alert = {
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
  fakeServer({
    'GET /api/v1/session': session('owner'),
    'GET /api/v1/tenants/acme/plans': page([plan('free')]),
    'GET /api/v1/tenants/acme/rules': page([watched]),
    'GET /api/v1/tenants/acme/rules/12': () => ({ json: watched, headers: { ETag: '"3"' } }),
    'GET /api/v1/tenants/acme/rules/12/overrides': page([]),
    'GET /api/v1/tenants/acme/audit': page([]),
    'GET /api/v1/tenants/acme/capacity': capacity(),
    'GET /api/v1/tenants/acme/stats/series': { ...series([]), step_seconds: 900 },
    'POST /api/v1/tenants/acme/simulate': {
      first_denial_ms: null,
      longest_wait_ms: 0,
      longest_delay_ms: 0,
      decisions: [],
      tiers: [],
    },
    'POST /api/v1/tenants/acme/alerts/preview': {
      since: '2026-11-14T06:00:00Z',
      until: '2026-11-21T06:00:00Z',
      counted_since: '2026-11-14T06:01:00Z',
      looked_back_to: null,
      fired: 0,
      firings: [],
    },
    'GET /api/v1/tenants/acme/alerts': page([
      { ...alert, rule_id: '12' },
      { ...alert, alert_id: '5', name: 'Any', rule_id: null },
      { ...alert, alert_id: '6', name: 'Other', rule_id: '99' },
    ]),
  });
  const { user } = open('/t/acme/rules/12');
  // By text, because looking for roles takes seconds on a page of this size.
  expect((await screen.findByText('Loud')).getAttribute('href')).toMatch(/alerts\?entry=4/);
  expect(screen.getByText('1,000 denials by this rule within 5 minutes')).toBeDefined();
  expect(screen.getByText('1,000 denials by any rule within 5 minutes')).toBeDefined();
  expect(screen.queryByText('Other')).toBeNull();
  await user.click(screen.getByText('Alert on this rule'));
  const dialog = await screen.findByRole('dialog', { name: 'New alert' });
  expect(within(dialog).getByRole<HTMLInputElement>('combobox', { name: 'Rule' }).value).toContain('user');
  expect(await within(dialog).findByText('It would not have fired in the last 7 days.')).toBeDefined();
});
