import { screen, waitFor, within } from '@testing-library/react';
import { expect, test } from 'vitest';
import type { AuditEntry } from '~/api/types';
import { auditEntry, fakeServer, page, problem, requested, rule } from '../../../test/fake';
import { open } from '../../../test/render';
import { live, shadow, world } from '../../../test/rules';
import { override, verdicts } from '../../../test/traffic';
import { liveRules } from './EnforceRule';
import { fits } from './Rules';

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
  expect(fits(live, { meter: 'usd' })).toBe(false);
  expect(fits(rule({ meter: 'input_tokens' }), { meter: 'input_tokens', q: 'input tokens' })).toBe(true);
  expect(fits(live, { plan: '*' })).toBe(false);
  expect(fits(rule({ plan: null }), { plan: '*' })).toBe(true);
  expect(fits(rule({ is_active: false }), { state: 'on' })).toBe(false);
});

/** A server that stores a rule, and refuses what is sent over an older version. */
function storing() {
  const server = { stored: live, requests: [] as ReturnType<typeof fakeServer> };
  const answer = () => ({ json: server.stored, headers: { ETag: `"${server.stored.version}"` } });
  server.requests = fakeServer({
    ...world(),
    'GET /api/v1/tenants/acme/rules/1': answer,
    'PATCH /api/v1/tenants/acme/rules/1': ({ headers, body }: { headers: Headers; body: object }) => {
      if (headers.get('If-Match') !== `"${server.stored.version}"`) return problem(412, 'precondition-failed');
      server.stored = { ...server.stored, ...body, version: server.stored.version + 1 };
      return answer();
    },
  });
  return server;
}

test('a lost race shows both versions, and mine is saved on top of theirs', async () => {
  const server = storing();
  const { user } = open('/t/acme/rules/1');
  const burst = await screen.findByLabelText('Burst');
  await user.retype(burst, '80');
  server.stored = { ...live, burst_capacity: 60, version: 4 };
  await user.click(screen.getByRole('button', { name: 'Save' }));
  const dialog = await screen.findByRole('dialog');
  const row = within(dialog).getByRole('row', { name: /Burst/ });
  expect(row.textContent).toBe('Burst6080');
  await user.click(within(dialog).getByRole('button', { name: 'Overwrite with mine' }));
  await waitFor(() => expect(server.stored.burst_capacity).toBe(80));
  const sent = server.requests.filter(({ method }) => method === 'PATCH');
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
    into_rule_id: '1',
    into_version: 3,
  });
});

test('a candidate may stand for any rule in force of its requests and plan, the unnamed one first', () => {
  const daily = rule({ rule_id: '3', plan: 'free', name: 'daily' });
  const others = [
    rule({ rule_id: '4', plan: 'pro' }),
    rule({ rule_id: '5', plan: 'free', key_pattern: 'global' }),
    rule({ rule_id: '6', plan: 'free', name: 'off', is_active: false }),
    rule({ rule_id: '7', plan: 'free', name: 'ended', expires_at: '2020-01-01T00:00:00Z' }),
  ];
  expect(liveRules([daily, live, shadow, ...others], shadow, Date.now())).toEqual([live, daily]);
});

test('a live rule’s menu stops enforcing it, and asks again with what changed meanwhile', async () => {
  const server = storing();
  const { user } = open('/t/acme/rules/1');
  await user.click(await screen.findByRole('button', { name: 'More' }));
  const names = (await screen.findAllByRole('menuitem')).map(({ textContent }) => textContent);
  expect(names).toEqual([
    'Edit',
    'Duplicate',
    'Try as shadow',
    'Schedule a change',
    'Replay another limit',
    'Stop enforcing (shadow mode)',
    'Turn off',
    'Remove rule',
  ]);
  await user.click(screen.getByRole('menuitem', { name: /Stop enforcing/ }));
  const dialog = await screen.findByRole('dialog');
  expect(dialog.textContent).toMatch(/10 per second, bursts to 50 denies nothing/);
  server.stored = { ...live, burst_capacity: 60, version: 4 };
  await user.click(within(dialog).getByRole('button', { name: 'Stop enforcing' }));
  await waitFor(() => expect(dialog.textContent).toMatch(/Changed since you opened this:Burst: 50 60/));
  expect(within(dialog).getByRole('alert').textContent).toMatch(/Confirm again/);
  await user.click(within(dialog).getByRole('button', { name: 'Stop enforcing' }));
  await waitFor(() => expect(server.stored.mode).toBe('shadow'));
  expect(server.requests.filter(({ method }) => method === 'PATCH').map(({ body }) => body)).toEqual([
    { mode: 'shadow' },
    { mode: 'shadow' },
  ]);
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
      entries.unshift({ ...done, audit_id: '813', actor, before: done.after, after: done.before });
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
  const theirs = override({ rule_id: '1', user_id: '7', reason: 'theirs', version: 32 });
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
  await user.type(await screen.findByLabelText(/^User/), '7');
  await user.type(screen.getByLabelText(/^Reason/), 'mine');
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
  const undo = await screen.findByRole('button', { name: 'Undo' });
  expect(screen.queryByText('Enforced from a shadow rule')).toBeNull();
  await user.click(undo);
  expect((await screen.findByRole('dialog')).textContent).not.toMatch(/is restored/);
});

test('a rule adapts to a backend, and its page shows the share in force and why', async () => {
  const adapt = { backend: 'search', floor_percent: 20, p99_ms: 300, error_percent: 1 };
  const adapting = rule({ rule_id: '1', plan: 'free', adapt });
  const item = {
    rule_id: '1',
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
  await user.retype(screen.getByRole('textbox', { name: 'Floor' }), '30');
  expect(screen.getByText(/floor 30 %/)).toBeDefined();
  await user.click(screen.getByRole('button', { name: 'Save' }));
  expect((await requested(requests, 'PATCH')).body).toEqual({
    adapt: { ...adapt, floor_percent: 30 },
  });
});

test('the list says when temporary rules end', async () => {
  const soon = new Date(Date.now() + 40 * 60_000).toISOString();
  fakeServer({ ...world(), 'GET /api/v1/tenants/acme/rules': page([{ ...live, expires_at: soon }, shadow]) });
  open('/t/acme/rules');
  expect(await screen.findByText(/ends in 40.min/)).toBeDefined();
  expect(screen.getAllByText(/^ends in/)).toHaveLength(1);
});

test('the address of a removed rule says what it was, who removed it and when', async () => {
  const removal = auditEntry({
    action: 'remove',
    actor: { kind: 'account', id: '1', name: 'ada@example.com', act: 'matrix', request_id: 'req-1' },
    object: { kind: 'rule', id: '10' },
    before: { ...rule({ rule_id: '10', plan: null }) },
    after: null,
  });
  fakeServer({
    ...world(),
    'GET /api/v1/tenants/acme/rules/10': () => problem(404, 'not-found'),
    'GET /api/v1/tenants/acme/audit': page([removal]),
  });
  open('/t/acme/rules/10');
  const note = await screen.findByRole('note');
  expect(note.textContent).toMatch(
    /ada@example.com removed this rule .* ago \(changes on the Plans page\). It was: 10 per second, bursts to 50/,
  );
  expect(await screen.findByRole('link', { name: /Each user free/ })).toBeDefined();
  expect(screen.getByRole('button', { name: 'Restore rule' })).toBeDefined();
});

const restoredWords = {
  'is enforced': [{}, /^Within 2 s it is in force again as it was: 10 per second, bursts to 50\./],
  'only reports': [{ mode: 'shadow' }, /^Within 2 s it is in shadow mode again .* It denies nothing\./],
  'is off': [{ is_active: false }, /^It returns as it was: .* No check uses it until you turn it on\./],
  'has ended': [
    { expires_at: '2026-01-01T00:00:00Z' },
    /^It returns as it was: .*, until 1 Jan, .* Give it a later end to use it\./,
  ],
} as const;

test.each(Object.entries(restoredWords))('restoring a rule that %s says what it will do', async (_, [was, words]) => {
  const removal = auditEntry({
    action: 'remove',
    object: { kind: 'rule', id: '10' },
    before: { ...rule({ rule_id: '10', plan: null, ...was }) },
    after: null,
  });
  fakeServer({
    ...world(),
    'GET /api/v1/tenants/acme/rules/10': () => problem(404, 'not-found'),
    'GET /api/v1/tenants/acme/audit': page([removal]),
    'POST /api/v1/tenants/acme/audit/812/revert': removal,
  });
  const { user } = open('/t/acme/rules/10');
  await user.click(await screen.findByRole('button', { name: 'Restore rule' }));
  const dialog = await screen.findByRole('dialog', { name: 'Restore this rule?' });
  expect(within(dialog).getByText(words)).toBeDefined();
  await user.click(within(dialog).getByRole('button', { name: 'Restore rule' }));
  const isInForce = !('is_active' in was || 'expires_at' in was);
  expect(await screen.findByText(isInForce ? /^Rule restored\. Checks follow it/ : /^Rule restored$/)).toBeDefined();
});

test('an address that never was a rule is not found', async () => {
  fakeServer({ ...world(), 'GET /api/v1/tenants/acme/rules/10': () => problem(404, 'not-found') });
  open('/t/acme/rules/10');
  expect(await screen.findByRole('heading', { name: 'Not found' })).toBeDefined();
});

test('the effect of an edit stands beside Save, and discarded edits come back', async () => {
  fakeServer(world());
  const { user } = open('/t/acme/rules/1');
  const burst = await screen.findByLabelText<HTMLInputElement>('Burst');
  await user.retype(burst, '20');
  const bar = screen.getByRole('region', { name: 'Save this rule' });
  const line = within(bar).getByText(/^Effect:/);
  await waitFor(() => expect(line.textContent).toBe('Effect: 20 more denied of 1,000 recorded checks'));
  await user.click(line);
  expect(within(bar).getByRole('status', { name: 'Effect' }).textContent).toContain(
    'Of 1,000 checks recorded from 1 Nov, 09:00 to 1 Nov, 21:00 UTC, this change would have denied 20 more. ' +
      'Most affected: 42 (+20).',
  );
  await user.click(screen.getByRole('button', { name: 'More' }));
  expect(screen.queryByRole('menuitem', { name: 'Try as shadow' })).toBeNull();
  await user.keyboard('{Escape}');
  await user.click(within(bar).getByRole('button', { name: 'Discard edits' }));
  expect(burst.value).toBe('50');
  await user.click(await screen.findByRole('button', { name: 'Undo' }));
  expect(burst.value).toBe('20');
});

test('what is typed while a rule is saved stays, and is not saved yet', async () => {
  let answer = () => {};
  const answered = new Promise<void>((resolve) => (answer = resolve));
  let stored = live;
  fakeServer({
    ...world(),
    'GET /api/v1/tenants/acme/rules/1': () => ({ json: stored, headers: { ETag: `"${stored.version}"` } }),
    'PATCH /api/v1/tenants/acme/rules/1': async ({ body }: { body: object }) => {
      await answered;
      stored = { ...stored, ...body, version: stored.version + 1 };
      return { json: stored, headers: { ETag: `"${stored.version}"` } };
    },
  });
  const { user } = open('/t/acme/rules/1');
  const burst = await screen.findByLabelText('Burst');
  await user.retype(burst, '80');
  await user.click(screen.getByRole('button', { name: 'Save' }));
  await user.type(screen.getByLabelText('Description'), 'since');
  answer();
  await waitFor(() => expect(stored.burst_capacity).toBe(80));
  await waitFor(() => expect(screen.getByRole('status', { name: 'Unsaved changes' }).textContent).toMatch(/since/));
  expect(screen.getByRole('status', { name: 'Unsaved changes' }).textContent).not.toMatch(/Burst/);
});

test('if the saved rule cannot be read after a lost race, that is said', async () => {
  let isLost = false;
  fakeServer({
    ...world(),
    'GET /api/v1/tenants/acme/rules/1': () =>
      isLost
        ? problem(500, 'internal', { detail: 'The database does not answer.' })
        : { json: live, headers: { ETag: '"3"' } },
    'PATCH /api/v1/tenants/acme/rules/1': () => {
      isLost = true;
      return problem(412, 'precondition-failed');
    },
  });
  const { user } = open('/t/acme/rules/1');
  const burst = await screen.findByLabelText('Burst');
  await user.retype(burst, '80');
  await user.click(screen.getByRole('button', { name: 'Save' }));
  expect(await screen.findByText('The database does not answer.')).toBeDefined();
});

test('another algorithm can be tried, and the limit comes back as it was', async () => {
  const slow = rule({ rule_id: '1', version: 3, rate_per_second: 0.1, rate_unit: 'minute', burst_capacity: 6 });
  fakeServer({ ...world(), 'GET /api/v1/tenants/acme/rules/1': () => ({ json: slow, headers: { ETag: '"3"' } }) });
  const { user } = open('/t/acme/rules/1');
  await user.selectOptions(await screen.findByLabelText('Algorithm'), 'fixed_window');
  expect(screen.getByLabelText('Requests per window')).toHaveProperty('value', '6');
  await user.selectOptions(screen.getByLabelText('Window'), 'month');
  await user.selectOptions(screen.getByLabelText('Algorithm'), 'token_bucket');
  expect(screen.getByLabelText('Rate')).toHaveProperty('value', '6');
  expect(screen.getByLabelText('Rate: unit')).toHaveProperty('value', 'minute');
  expect(screen.queryByRole('status', { name: 'Unsaved changes' })).toBeNull();
  await user.selectOptions(screen.getByLabelText('Algorithm'), 'fixed_window');
  expect(screen.getByLabelText('Window')).toHaveProperty('value', 'month');
});

test('an emptied length is an edit, and an error, also where the usual one was', async () => {
  const places = rule({ rule_id: '1', version: 3, algorithm: 'concurrency', rate_per_second: 0, max_hold: '10m' });
  fakeServer({ ...world(), 'GET /api/v1/tenants/acme/rules/1': () => ({ json: places, headers: { ETag: '"3"' } }) });
  const { user } = open('/t/acme/rules/1');
  await user.clear(await screen.findByLabelText('Longest hold'));
  expect(await screen.findByRole('status', { name: 'Unsaved changes' })).toBeDefined();
  expect(screen.getByLabelText('Longest hold')).toHaveProperty('ariaInvalid', 'true');
});
