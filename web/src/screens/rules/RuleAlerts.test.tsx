import { screen, within } from '@testing-library/react';
import { expect, test } from 'vitest';
import { capacity, fakeServer, page, plan, rule, session } from '../../../test/fake';
import { open } from '../../../test/render';
import { noSimulation } from '../../../test/rules';
import { loud, preview } from '../../../test/settings';
import { series } from '../../../test/traffic';

test('a rule’s page has the alerts that watch it, and makes one on it', async () => {
  const watched = rule({ rule_id: '12' });
  fakeServer({
    'GET /api/v1/session': session('owner'),
    'GET /api/v1/tenants/acme/plans': page([plan('free')]),
    'GET /api/v1/tenants/acme/rules': page([watched]),
    'GET /api/v1/tenants/acme/rules/12': () => ({ json: watched, headers: { ETag: '"3"' } }),
    'GET /api/v1/tenants/acme/rules/12/overrides': page([]),
    'GET /api/v1/tenants/acme/audit': page([]),
    'GET /api/v1/tenants/acme/capacity': capacity(),
    'GET /api/v1/tenants/acme/stats/series': { ...series([]), step_seconds: 900 },
    'POST /api/v1/tenants/acme/simulate': noSimulation,
    'POST /api/v1/tenants/acme/alerts/preview': preview(),
    'GET /api/v1/tenants/acme/alerts': page([
      loud,
      { ...loud, alert_id: '5', name: 'Any', rule_id: null },
      { ...loud, alert_id: '6', name: 'Other', rule_id: '99' },
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
