import { screen } from '@testing-library/react';
import { expect, test } from 'vitest';
import type { Rule } from '~/api/types';
import { auditEntry, fakeServer, page, requested, rule } from '../../../test/fake';
import { open } from '../../../test/render';
import { world } from '../../../test/rules';
import { summary, tenantStatus, verdicts } from '../../../test/traffic';

test('a copy begins with all that the rule says, under a name that is free', async () => {
  fakeServer(world());
  open('/t/acme/rules/new?from=2');
  expect(await screen.findByLabelText('Name')).toHaveProperty('value', 'half-copy');
  expect(screen.getByLabelText('Rate')).toHaveProperty('value', '5');
});

test('a new shadow rule is announced and kept in the history as one', async () => {
  const made = rule({ rule_id: '9', mode: 'shadow' });
  fakeServer({
    ...world(),
    'POST /api/v1/tenants/acme/rules': () => ({ status: 201, json: made }),
    'GET /api/v1/tenants/acme/rules/9': () => ({ json: made, headers: { ETag: '"1"' } }),
    'GET /api/v1/tenants/acme/rules/9/overrides': page([]),
    'GET /api/v1/tenants/acme/audit': page([
      auditEntry({ action: 'create', before: null, after: { ...made } }),
      auditEntry({
        audit_id: '811',
        action: 'create',
        before: null,
        after: { ...made, action: 'block', mode: 'enforce' },
      }),
    ]),
  });
  const { user } = open('/t/acme/rules/new');
  await user.click(await screen.findByText('Shadow'));
  await user.click(screen.getByRole('button', { name: 'Create rule' }));
  expect(await screen.findByText('Rule created. Within 2 s it reports what it would deny')).toBeDefined();
  expect(await screen.findByText('Created in shadow mode: 10 per second, bursts to 50')).toBeDefined();
  expect(screen.getByText('Created: Always denied')).toBeDefined();
});

test('after the first rule of a tenant the next step is shown', async () => {
  let rules = page([] as Rule[]);
  fakeServer({
    ...world(),
    'GET /api/v1/tenants/acme/stats/summary': summary(verdicts(0, 0)),
    'GET /api/v1/tenants/acme/status': tenantStatus(),
    'GET /api/v1/tenants/acme/rules': () => ({ json: rules }),
    'GET /api/v1/tenants/acme/api-keys': page([]),
    'POST /api/v1/tenants/acme/rules': () => {
      rules = page([rule()]);
      return { status: 201, json: rule() };
    },
  });
  const { user } = open('/t/acme/rules/new?first=true');
  const back = await screen.findByRole('link', { name: 'Get started' });
  expect(back.getAttribute('href')).toBe('/t/acme/overview');
  await user.click(screen.getByRole('button', { name: 'Create rule' }));
  expect(await screen.findByText('1 rule on 1 plan.')).toBeDefined();
  expect(screen.getByRole('heading', { name: 'Create an API key' })).toBeDefined();
});

test('a quota is made with the fields that quotas have, and nothing else is sent', async () => {
  const requests = fakeServer({
    ...world(),
    'POST /api/v1/tenants/acme/rules': () => ({ json: rule({ rule_id: '9' }), status: 201 }),
  });
  const { user } = open('/t/acme/rules/new');
  await user.selectOptions(await screen.findByRole('combobox', { name: 'Algorithm' }), 'Fixed window, quota');
  expect(screen.queryByRole('textbox', { name: 'Rate' })).toBeNull();
  expect(screen.queryByRole('textbox', { name: 'Longest hold' })).toBeNull();
  await user.selectOptions(screen.getByRole('combobox', { name: 'Window' }), 'calendar month');
  await user.selectOptions(screen.getByRole('combobox', { name: 'Begins on' }), '15th');
  await user.type(screen.getByRole('combobox', { name: 'Time zone' }), 'Europe/Berlin');
  const shares = screen.getByRole('textbox', { name: /^Record when/ });
  await user.type(shares, '150, abc');
  expect(await screen.findByText('must be whole numbers from 1 to 100, such as 80, 100')).toBeDefined();
  expect(screen.getByRole('button', { name: 'Create rule' })).toHaveProperty('disabled', true);
  await user.retype(shares, '80, 100');
  await user.retype(screen.getByRole('textbox', { name: 'Requests per window' }), '10000');
  expect(screen.getByText('10,000 per month from the 15th, Europe/Berlin')).toBeDefined();
  await user.click(screen.getByRole('button', { name: 'Create rule' }));
  const sent = (await requested(requests, 'POST', '/rules')).body;
  expect(sent).toEqual({
    key_pattern: 'user:{user_id}',
    name: '',
    plan: null,
    mode: 'enforce',
    action: 'limit',
    failure_mode: null,
    is_active: true,
    description: '',
    algorithm: 'fixed_window',
    rate_unit: 'second',
    burst_capacity: 10000,
    window: 'month',
    window_zone: 'Europe/Berlin',
    window_start_day: 15,
    notify_at: [80, 100],
  });
});

test('a preset turns the limit into places, and what is wrong with a field is said there', async () => {
  fakeServer(world());
  const { user } = open('/t/acme/rules/new');
  await user.click(await screen.findByRole('button', { name: '20 at once' }));
  expect(screen.getByText('20 at once, held at most 10 min')).toBeDefined();
  await user.retype(screen.getByRole('textbox', { name: 'Longest hold' }), '25h');
  expect(screen.getByText('must be at most 24h')).toBeDefined();
  expect(screen.getByRole('button', { name: 'Create rule' })).toHaveProperty('disabled', true);
});
