import { screen, waitFor, within } from '@testing-library/react';
import { expect, test } from 'vitest';
import { fakeServer, page, plan, problem, rule, session } from '../../../test/fake';
import { open } from '../../../test/render';
import { liveRules } from './Promote';
import { fits } from './Rules';

const live = rule({ rule_id: 1, plan: 'free' });
const shadow = rule({ rule_id: 2, plan: 'free', name: 'half', mode: 'shadow', rate_per_second: 5 });
const verdicts = { allowed: 0, denied: 0, bypassed: 0, degraded: 0, cost: 0 };

const world = (role: 'viewer' | 'editor' = 'editor', shown = live) => ({
  'GET /api/v1/session': session(role),
  'GET /api/v1/tenants/acme/plans': page([plan('free'), plan('pro')]),
  'GET /api/v1/tenants/acme/rules': page([live, shadow]),
  [`GET /api/v1/tenants/acme/rules/${shown.rule_id}`]: () => ({ json: shown, headers: { ETag: '"3"' } }),
  [`GET /api/v1/tenants/acme/rules/${shown.rule_id}/overrides`]: page([]),
  'GET /api/v1/tenants/acme/audit': page([]),
  'GET /api/v1/tenants/acme/stats/series': {
    from: '',
    until: '',
    step_seconds: 900,
    points: [],
    total: verdicts,
  },
  'GET /api/v1/tenants/acme/stats/top': { by: 'rule', from: '', until: '', items: [], looked_back_to: null },
  'POST /api/v1/tenants/acme/simulate': {
    checks: 0,
    allowed: 0,
    denied: 0,
    first_denial_ms: null,
    longest_wait_ms: 0,
    decisions: [],
    tiers: [],
  },
});

test('filters live in the address', async () => {
  fakeServer(world());
  const { user, router } = open('/t/acme/rules');
  await user.selectOptions(await screen.findByRole('combobox', { name: 'Enforced or shadow' }), 'shadow');
  await waitFor(() => expect(screen.getAllByRole('row')).toHaveLength(2));
  expect(router.state.location.search).toEqual({ mode: 'shadow' });
});

test('a rule is found by words of its pattern, its name and what it means', () => {
  expect(fits(shadow, { q: 'each half' })).toBe(true);
  expect(fits(live, { q: 'half' })).toBe(false);
  expect(fits(live, { plan: '*' })).toBe(false);
  expect(fits(rule({ plan: null }), { plan: '*' })).toBe(true);
  expect(fits(rule({ is_active: false }), { state: 'on' })).toBe(false);
});

test('a lost race shows both versions, and mine is saved on top of theirs', async () => {
  let stored = live;
  let etag = '"3"';
  const requests = fakeServer({
    ...world(),
    'GET /api/v1/tenants/acme/rules/1': () => ({ json: stored, headers: { ETag: etag } }),
    'PATCH /api/v1/tenants/acme/rules/1': ({ headers, body }: { headers: Headers; body: object }) => {
      if (headers.get('If-Match') !== etag) return problem(412, 'precondition-failed');
      stored = { ...stored, ...body };
      return { json: stored, headers: { ETag: '"5"' } };
    },
  });
  const { user } = open('/t/acme/rules/1');
  const burst = await screen.findByLabelText('Burst');
  await user.clear(burst);
  await user.type(burst, '80');
  stored = { ...live, burst_capacity: 60, version: 4 };
  etag = '"4"';
  await user.click(screen.getByRole('button', { name: 'Save' }));
  const dialog = await screen.findByRole('dialog');
  const row = within(dialog).getByRole('row', { name: /Burst/ });
  expect(row.textContent).toBe('Burst6080');
  await user.click(within(dialog).getByRole('button', { name: 'Save mine over it' }));
  await waitFor(() => expect(stored.burst_capacity).toBe(80));
  const sent = requests.filter(({ method }) => method === 'PATCH');
  expect(sent.map(({ headers }) => headers.get('If-Match'))).toEqual(['"3"', '"4"']);
});

test('a viewer reads a rule and sees no button that would fail', async () => {
  fakeServer(world('viewer', shadow));
  open('/t/acme/rules/2');
  expect(await screen.findByLabelText('Burst')).toHaveProperty('disabled', true);
  for (const name of ['Save', 'Enforce', 'More', 'New override']) {
    expect(screen.queryByRole('button', { name }), name).toBeNull();
  }
});

test('a shadow rule goes into the place of the live one', async () => {
  const requests = fakeServer({
    ...world('editor', shadow),
    'GET /api/v1/tenants/acme/rules/1': () => ({ json: live, headers: { ETag: '"3"' } }),
    'GET /api/v1/tenants/acme/rules/1/overrides': page([]),
    'POST /api/v1/tenants/acme/rules/2/promote': live,
  });
  const { user, router } = open('/t/acme/rules/2');
  await user.click(await screen.findByRole('button', { name: 'Enforce' }));
  const dialog = await screen.findByRole('dialog');
  await within(dialog).findByText(/The live rule goes from/);
  await user.click(within(dialog).getByRole('button', { name: 'Enforce' }));
  await waitFor(() => expect(router.state.location.pathname).toBe('/t/acme/rules/1'));
  expect(requests.find(({ path }) => path.endsWith('/promote'))?.body).toEqual({
    into_rule_id: 1,
    into_version: 3,
  });
});

test('a candidate may stand for any enforced rule of its requests and plan, the unnamed one first', () => {
  const daily = rule({ rule_id: 3, plan: 'free', name: 'daily' });
  const others = [
    rule({ rule_id: 4, plan: 'pro' }),
    rule({ rule_id: 5, plan: 'free', key_pattern: 'global' }),
  ];
  expect(liveRules([daily, live, shadow, ...others], shadow)).toEqual([live, daily]);
});
