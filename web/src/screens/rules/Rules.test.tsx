import { fireEvent, screen, waitFor, within } from '@testing-library/react';
import { expect, test } from 'vitest';
import type { AuditEntry } from '~/api/types';
import { auditEntry, fakeServer, page, plan, problem, rule, session } from '../../../test/fake';
import { open } from '../../../test/render';
import { override, series, top, verdicts } from '../../../test/traffic';
import { liveRules } from './EnforceRule';
import { fits } from './Rules';

const live = rule({ rule_id: 1, plan: 'free' });
const shadow = rule({ rule_id: 2, plan: 'free', name: 'half', mode: 'shadow', rate_per_second: 5 });

const world = (role: 'viewer' | 'editor' = 'editor', shown = live) => ({
  'GET /api/v1/session': session(role),
  'GET /api/v1/tenants/acme/plans': page([plan('free'), plan('pro')]),
  'GET /api/v1/tenants/acme/rules': page([live, shadow]),
  [`GET /api/v1/tenants/acme/rules/${shown.rule_id}`]: () => ({ json: shown, headers: { ETag: '"3"' } }),
  [`GET /api/v1/tenants/acme/rules/${shown.rule_id}/overrides`]: page([]),
  'GET /api/v1/tenants/acme/audit': page([]),
  'GET /api/v1/tenants/acme/stats/series': { ...series([]), step_seconds: 900 },
  'GET /api/v1/tenants/acme/stats/top': top('rule', []),
  'GET /api/v1/tenants/acme/alerts': page([]),
  'POST /api/v1/tenants/acme/effect': {
    is_recording: true,
    since: '2026-11-01T09:00:00Z',
    note: null,
    checks: { value: 1000, error: 0 },
    share: 1,
    denied_then: { value: 5, error: 0 },
    denied_now: { value: 25, error: 0 },
    newly_denied: { value: 20, error: 0 },
    no_longer_denied: { value: 0, error: 0 },
    rules: [],
    users: [{ user_id: '42', ip: null, newly_denied: 20, no_longer_denied: 0 }],
    left_out: [],
  },
  'POST /api/v1/tenants/acme/simulate': {
    checks: 0,
    allowed: 0,
    denied: 0,
    first_denial_ms: null,
    longest_wait_ms: 0,
    longest_delay_ms: 0,
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
  await user.click(within(dialog).getByRole('button', { name: 'Overwrite with mine' }));
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

test('the menu of a live rule stops enforcing it, and asks again with what changed if somebody was faster', async () => {
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
  await user.click(await screen.findByRole('button', { name: 'More' }));
  const names = (await screen.findAllByRole('menuitem')).map(({ textContent }) => textContent);
  expect(names).toEqual([
    'Edit',
    'Duplicate',
    'Try as shadow',
    'Stop enforcing (shadow mode)',
    'Turn off',
    'Remove rule',
  ]);
  await user.click(screen.getByRole('menuitem', { name: /Stop enforcing/ }));
  const dialog = await screen.findByRole('dialog');
  expect(dialog.textContent).toMatch(/10 per second, bursts to 50 denies nothing/);
  stored = { ...live, burst_capacity: 60, version: 4 };
  etag = '"4"';
  await user.click(within(dialog).getByRole('button', { name: 'Stop enforcing' }));
  await waitFor(() => expect(dialog.textContent).toMatch(/Changed since you opened this:Burst: 50 60/));
  expect(within(dialog).getByRole('alert').textContent).toMatch(/Confirm again/);
  await user.click(within(dialog).getByRole('button', { name: 'Stop enforcing' }));
  await waitFor(() => expect(stored.mode).toBe('shadow'));
  expect(requests.filter(({ method }) => method === 'PATCH').map(({ body }) => body)).toEqual([
    { mode: 'shadow' },
    { mode: 'shadow' },
  ]);
});

const candidate = rule({
  rule_id: 9,
  plan: 'free',
  name: 'candidate',
  mode: 'shadow',
  burst_capacity: 20,
  candidate_for: 1,
  limit_text: '10 per second, bursts to 20',
});

const comparison = {
  live,
  since: '2026-11-21T06:00:00Z',
  until: '2026-11-21T06:02:00Z',
  step_seconds: 60,
  points: [
    { at: '2026-11-21T06:00:00Z', checks: 200, live_denied: 4, candidate_denied: 10 },
    { at: '2026-11-21T06:01:00Z', checks: 200, live_denied: 4, candidate_denied: 10 },
  ],
  live_total: verdicts(392, 8),
  candidate_total: verdicts(380, 20),
  live_only: { subjects: 0, items: [] },
  candidate_only: { subjects: 12, items: [{ subject: '42', denied: 9 }] },
  looked_back_to: null,
};

const besides = {
  ...world(),
  'GET /api/v1/tenants/acme/rules': page([live, candidate]),
  'GET /api/v1/tenants/acme/rules/9': () => ({ json: candidate, headers: { ETag: '"1"' } }),
  'GET /api/v1/tenants/acme/rules/9/overrides': page([]),
  'GET /api/v1/tenants/acme/rules/9/comparison': comparison,
};

test('the shadow toggle of a live rule says that its limit stops, and what was typed can be tried as shadow', async () => {
  const requests = fakeServer({
    ...besides,
    'GET /api/v1/tenants/acme/rules': page([live]),
    'POST /api/v1/tenants/acme/rules/1/candidate': () => ({ status: 201, json: candidate }),
  });
  const { user, router } = open('/t/acme/rules/1');
  await user.click(await screen.findByText('Shadow'));
  expect(screen.getByText(/this rule denies nothing/)).toBeDefined();
  await user.click(screen.getByRole('radio', { name: 'Enforced' }));
  expect(screen.queryByText(/this rule denies nothing/)).toBeNull();
  const burst = screen.getByLabelText('Burst');
  await user.clear(burst);
  await user.type(burst, '20');
  await user.click(await screen.findByRole('button', { name: 'Try as shadow' }));
  await waitFor(() => expect(router.state.location.pathname).toBe('/t/acme/rules/9'));
  expect(requests.find(({ method, path }) => method === 'POST' && path.endsWith('/candidate'))?.body).toEqual(
    { burst_capacity: 20 },
  );
});

test('a live rule shows its candidate, and offers no second one', async () => {
  fakeServer(besides);
  const { user } = open('/t/acme/rules/1');
  expect(await screen.findByText(/is tried beside this rule/)).toBeDefined();
  expect(await screen.findByText(/The candidate would have denied 20 \(5/)).toBeDefined();
  await user.type(screen.getByLabelText('Burst'), '0');
  expect(await screen.findByRole('button', { name: 'Save' })).toBeDefined();
  expect(screen.queryByRole('button', { name: 'Try as shadow' })).toBeNull();
});

test('the page of a candidate says who differs, and promotes it over the version of the live rule that was shown', async () => {
  const requests = fakeServer({
    ...besides,
    'POST /api/v1/tenants/acme/rules/9/promote': live,
  });
  const { user, router } = open('/t/acme/rules/9');
  const only = await screen.findByRole('region', { name: 'Denied by the candidate only' });
  expect(only.textContent).toMatch(/429 checksAnd 11 more/);
  await user.click(await screen.findByRole('button', { name: 'Promote' }));
  const dialog = await screen.findByRole('dialog');
  expect(dialog.textContent).toMatch(/goes from 10 per second, bursts to 50 to 10 per second, bursts to 20/);
  await user.click(within(dialog).getByRole('button', { name: 'Promote' }));
  await waitFor(() => expect(router.state.location.pathname).toBe('/t/acme/rules/1'));
  const sent = requests.find(({ path }) => path.endsWith('/promote'));
  expect(sent?.headers.get('If-Match')).toBe('"1"');
  expect(sent?.body).toEqual({ into_rule_id: 1, into_version: 3 });
});

test('a candidate is discarded', async () => {
  const requests = fakeServer({
    ...besides,
    'DELETE /api/v1/tenants/acme/rules/9': () => ({ status: 204 }),
  });
  const { user, router } = open('/t/acme/rules/9');
  await user.click(await screen.findByRole('button', { name: 'Discard' }));
  const dialog = await screen.findByRole('dialog');
  expect(dialog.textContent).toMatch(/The live rule stays 10 per second, bursts to 50/);
  await user.click(within(dialog).getByRole('button', { name: 'Discard candidate' }));
  await waitFor(() => expect(router.state.location.pathname).toBe('/t/acme/rules/1'));
  expect(requests.some(({ method, path }) => method === 'DELETE' && path.endsWith('/rules/9'))).toBe(true);
});

const scheduled = {
  change_id: 7,
  rule_id: 1,
  change: { burst_capacity: 80 },
  starts_at: '2026-11-23T09:00:00Z',
  ends_at: '2026-11-27T17:00:00Z',
  state: 'waiting' as const,
  requested_at: '2026-11-21T06:00:00Z',
  requested_by: 'ada@example.com',
  applied_at: null,
  ended_at: null,
  failure: null,
};

test('what was typed is scheduled with its end, for the version that was shown', async () => {
  const requests = fakeServer({
    ...world(),
    'POST /api/v1/tenants/acme/scheduled-changes': () => ({ status: 201, json: scheduled }),
  });
  const { user } = open('/t/acme/rules/1');
  const burst = await screen.findByLabelText('Burst');
  await user.clear(burst);
  await user.type(burst, '80');
  await user.click(screen.getByRole('button', { name: 'Schedule' }));
  const dialog = await screen.findByRole('dialog');
  fireEvent.change(within(dialog).getByLabelText(/Starts/), { target: { value: '2026-11-23T09:00' } });
  fireEvent.change(within(dialog).getByLabelText(/Ends/), { target: { value: '2026-11-23T08:00' } });
  expect(within(dialog).getByRole('button', { name: 'Schedule' })).toHaveProperty('disabled', true);
  fireEvent.change(within(dialog).getByLabelText(/Ends/), { target: { value: '2026-11-27T17:00' } });
  await user.click(within(dialog).getByRole('button', { name: 'Schedule' }));
  await waitFor(() => expect(screen.queryByRole('dialog')).toBeNull());
  expect(requests.find(({ path, method }) => method === 'POST' && path.endsWith('changes'))?.body).toEqual({
    rule_id: 1,
    version: 3,
    change: { burst_capacity: 80 },
    starts_at: new Date('2026-11-23T09:00').toISOString(),
    ends_at: new Date('2026-11-27T17:00').toISOString(),
  });
  expect(screen.getByLabelText('Burst')).toHaveProperty('value', '50');
});

test('scheduled changes are listed with what became of them, and one that waits is canceled', async () => {
  const edited = {
    ...scheduled,
    change_id: 6,
    state: 'edited' as const,
    failure: 'Somebody edited the rule meanwhile, so nothing was taken back.',
  };
  const requests = fakeServer({
    ...world(),
    'GET /api/v1/tenants/acme/scheduled-changes': page([scheduled, edited]),
    'POST /api/v1/tenants/acme/scheduled-changes/7/cancel': { ...scheduled, state: 'canceled' },
  });
  const { user } = open('/t/acme/rules/1');
  const list = await screen.findByRole('list', { name: 'Scheduled changes' });
  const [waiting, kept] = within(list).getAllByRole('listitem');
  expect(waiting?.textContent).toMatch(/WaitingBurst: 80.*by ada@example.com/);
  expect(kept?.textContent).toMatch(/Not taken back.*Somebody edited the rule/);
  await user.click(within(list).getByRole('button', { name: 'Cancel' }));
  await user.click(within(await screen.findByRole('dialog')).getByRole('button', { name: 'Cancel change' }));
  await waitFor(() => expect(requests.some(({ path }) => path.endsWith('/7/cancel'))).toBe(true));
});

test('a copy begins with all that the rule says, under a name that is free', async () => {
  fakeServer(world());
  open('/t/acme/rules/new?from=2');
  expect(await screen.findByLabelText('Name')).toHaveProperty('value', 'half-copy');
  expect(screen.getByLabelText('Rate')).toHaveProperty('value', '5');
});

test('what was undone is offered to be made again, and not to be undone again', async () => {
  const old = { ...live, burst_capacity: 50 };
  const entries = [auditEntry({ before: { ...old }, after: { ...old, burst_capacity: 60 } })];
  const requests = fakeServer({
    ...world(),
    'GET /api/v1/tenants/acme/audit': () => ({ json: page(entries) }),
    'POST /api/v1/tenants/acme/audit/812/revert': () => {
      const [done] = entries as [AuditEntry];
      const actor = { ...done.actor, act: 'revert 812' };
      entries.unshift({ ...done, audit_id: 813, actor, before: done.after, after: done.before });
      return { json: entries[0] };
    },
  });
  const { user } = open('/t/acme/rules/1');
  await user.click(await screen.findByRole('button', { name: 'Undo' }));
  const dialog = await screen.findByRole('dialog');
  await user.click(within(dialog).getByRole('button', { name: 'Undo' }));
  expect(await screen.findByRole('button', { name: 'Redo' })).toBeDefined();
  expect(screen.queryByRole('button', { name: 'Undo' })).toBeNull();
  expect(requests.some(({ path }) => path.endsWith('/812/revert'))).toBe(true);
});

test('an override that somebody else gave meanwhile is shown beside mine', async () => {
  const theirs = override({ rule_id: 1, user_id: '7', reason: 'theirs', version: 32 });
  const tags: (string | null)[] = [];
  fakeServer({
    ...world(),
    'GET /api/v1/tenants/acme/rules/1/overrides/7': theirs,
    'PUT /api/v1/tenants/acme/rules/1/overrides/7': ({ headers }: { headers: Headers }) => {
      tags.push(headers.get('If-Match') ?? headers.get('If-None-Match'));
      return tags.length > 1 ? { json: theirs } : problem(412, 'precondition-failed');
    },
  });
  const { user } = open('/t/acme/rules/1');
  await user.click(await screen.findByRole('button', { name: 'New override' }));
  await user.type(await screen.findByLabelText('User'), '7');
  await user.type(screen.getByLabelText('Reason'), 'mine');
  await user.click(screen.getByRole('button', { name: 'Save override' }));
  const dialog = await screen.findByRole('dialog', { name: /Someone changed the override of user 7/ });
  expect(within(dialog).getByRole('row', { name: 'Reason theirs mine' })).toBeDefined();
  await user.click(within(dialog).getByRole('button', { name: 'Overwrite with mine' }));
  await waitFor(() => expect(tags).toEqual(['*', '"32"']));
});

test('a rule that was enforced today does not claim to have denied what it only reported before', async () => {
  const enforced = auditEntry({
    actor: { kind: 'account', id: '1', name: 'ada@example.com', act: 'promote', request_id: 'req-1' },
    at: '2026-11-20T12:00:00Z',
    before: { ...live, mode: 'shadow' },
    after: { ...live },
  });
  fakeServer({
    ...world(),
    'GET /api/v1/tenants/acme/audit': page([enforced]),
    'GET /api/v1/tenants/acme/stats/series': {
      from: '2026-11-19T12:30:00Z',
      until: '2026-11-20T12:30:00Z',
      step_seconds: 900,
      points: [],
      total: verdicts(4, 26),
    },
  });
  const { user } = open('/t/acme/rules/1');
  expect(
    await screen.findByText('26 of 30 checks were denied, or would have been while in shadow (87 %).'),
  ).toBeDefined();
  expect(screen.queryByText('Enforced from a shadow rule')).toBeNull();
  await user.click(screen.getByRole('button', { name: 'Undo' }));
  expect((await screen.findByRole('dialog')).textContent).not.toMatch(/is restored/);
});

test('a new shadow rule is announced and kept in the history as one', async () => {
  const made = rule({ rule_id: 9, mode: 'shadow' });
  fakeServer({
    ...world(),
    'POST /api/v1/tenants/acme/rules': () => ({ status: 201, json: made }),
    'GET /api/v1/tenants/acme/rules/9': () => ({ json: made, headers: { ETag: '"1"' } }),
    'GET /api/v1/tenants/acme/rules/9/overrides': page([]),
    'GET /api/v1/tenants/acme/audit': page([
      auditEntry({ action: 'create', before: null, after: { ...made } }),
      auditEntry({
        audit_id: 811,
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

test('a new rule can begin as a block of an address', async () => {
  fakeServer(world());
  open('/t/acme/rules/new?block=203.0.113.9');
  expect(await screen.findByLabelText('Key pattern')).toHaveProperty('value', 'ip:203.0.113.9');
  expect(screen.getByLabelText('Action')).toHaveProperty('value', 'block');
  expect(screen.getByText('Every matching request is denied.')).toBeDefined();
});

test('the address of IPv6 that a block begins with is quoted', async () => {
  fakeServer(world());
  open('/t/acme/rules/new?block=2001:db8::1');
  expect(await screen.findByLabelText('Key pattern')).toHaveProperty('value', 'ip:"2001:db8::1"');
});

test('a quota is made with the fields that quotas have, and nothing else is sent', async () => {
  const requests = fakeServer({
    ...world(),
    'POST /api/v1/tenants/acme/rules': () => ({ json: rule({ rule_id: 9 }), status: 201 }),
  });
  const { user } = open('/t/acme/rules/new');
  expect(await screen.findAllByRole('img', { name: /^35 requests: \d+ allowed/ })).toHaveLength(6);
  await user.click(screen.getByRole('radio', { name: /Fixed window/ }));
  expect(screen.queryByRole('textbox', { name: 'Rate' })).toBeNull();
  expect(screen.queryByRole('textbox', { name: 'Longest hold' })).toBeNull();
  await user.selectOptions(screen.getByRole('combobox', { name: 'Window' }), 'calendar month');
  await user.selectOptions(screen.getByRole('combobox', { name: 'Begins on' }), '15th');
  await user.type(screen.getByRole('combobox', { name: 'Time zone' }), 'Europe/Berlin');
  await user.type(screen.getByRole('textbox', { name: /^Note when/ }), '80, 100');
  await user.clear(screen.getByRole('textbox', { name: 'Requests per window' }));
  await user.type(screen.getByRole('textbox', { name: 'Requests per window' }), '10000');
  expect(screen.getByText('10,000 per month from the 15th, Europe/Berlin')).toBeDefined();
  await user.click(screen.getByRole('button', { name: 'Create rule' }));
  await waitFor(() =>
    expect(requests.some(({ method, path }) => method === 'POST' && path.endsWith('/rules'))).toBe(true),
  );
  const sent = requests.find(({ method, path }) => method === 'POST' && path.endsWith('/rules'))?.body;
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
  await user.clear(screen.getByRole('textbox', { name: 'Longest hold' }));
  await user.type(screen.getByRole('textbox', { name: 'Longest hold' }), '25h');
  expect(screen.getByText('must be at most 24h')).toBeDefined();
  expect(screen.getByRole('button', { name: 'Create rule' })).toHaveProperty('disabled', true);
});

test('a rule adapts to a backend, and its page shows the share in force and why', async () => {
  const adapt = { backend: 'search', floor_percent: 20, p99_ms: 300, error_percent: 1 };
  const adapting = rule({ rule_id: 1, plan: 'free', adapt });
  const item = {
    rule_id: 1,
    backend: 'search',
    share_percent: 49,
    limit_text: '4.9 per second, bursts to 50',
    since: '2026-11-20T12:00:00Z',
    ends_at: '2026-11-20T12:01:00Z',
    cause: 'p99 of 120 requests is 412 ms, and should be at most 300 ms',
    seen: { requests: 1200, errors: 3, p99_ms: 412 },
  };
  const requests = fakeServer({
    ...world('editor', adapting),
    'GET /api/v1/tenants/acme/adapting': { items: [item] },
    'PATCH /api/v1/tenants/acme/rules/1': () => ({ json: adapting, headers: { ETag: '"4"' } }),
  });
  const { user } = open('/t/acme/rules/1');
  expect(await screen.findByText(/4\.9 per second, bursts to 50 \(49 %\)/)).toBeDefined();
  expect(screen.getByText(item.cause)).toBeDefined();
  expect(screen.getByText('1,200 requests in the last minute, 3 failed, p99 412 ms')).toBeDefined();
  await user.clear(screen.getByRole('textbox', { name: 'Floor' }));
  await user.type(screen.getByRole('textbox', { name: 'Floor' }), '30');
  expect(screen.getByText(/floor 30 %/)).toBeDefined();
  await user.click(screen.getByRole('button', { name: 'Save' }));
  await waitFor(() =>
    expect(requests.find(({ method }) => method === 'PATCH')?.body).toEqual({
      adapt: { ...adapt, floor_percent: 30 },
    }),
  );
});
