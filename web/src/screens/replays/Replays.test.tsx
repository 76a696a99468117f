import { fireEvent, screen, waitFor, within } from '@testing-library/react';
import { expect, test } from 'vitest';
import type { Rule } from '~/api/types';
import { exactTime, timeSpan } from '~/domain/format';
import { dayBefore } from '~/domain/zone';
import type { NewReplay, Recording, Replay, ReplayResult } from '~/features/replay/queries';
import { fakeServer, page, problem, requested, rule, session } from '../../../test/fake';
import { open } from '../../../test/render';

const acme = '/api/v1/tenants/acme';

const ago = (ms: number) => new Date(Date.now() - ms).toISOString();

function recording(more: Partial<Recording> = {}): Recording {
  return {
    record_days: 7,
    bytes: 100 * 1024 * 1024,
    budget_bytes: 512 * 1024 * 1024,
    checks: 1_204_000,
    seen: 1_204_000,
    left_out: 0,
    dropped: 0,
    share: 1,
    is_stopped: false,
    oldest: ago(6 * 86_400_000),
    newest: ago(60_000),
    ...more,
  };
}

function replay(more: Partial<Replay> = {}): Replay {
  return {
    replay_id: '7',
    title: 'Half the rate',
    kind: 'rules',
    plan: null,
    since: '2026-11-20T00:00:00Z',
    until: '2026-11-21T00:00:00Z',
    sample: 0,
    seed: 0,
    prune: false,
    requested_at: '2026-11-21T06:00:00Z',
    requested_by: 'Ada',
    state: 'running',
    progress: 0.4,
    started_at: '2026-11-21T06:00:01Z',
    finished_at: null,
    failure: null,
    file: 'rules: []',
    result: null,
    ...more,
  };
}

const figure = (value: number, error = 0) => ({ value, error });
const counts = {
  denied_then: figure(10),
  denied_now: figure(310, 20),
  newly_denied: figure(305, 19),
  no_longer_denied: figure(5, 2),
};

const result: ReplayResult = {
  since: '2026-11-20T00:00:00Z',
  until: '2026-11-21T00:00:00Z',
  read: 25_000,
  share: 0.25,
  is_estimate: true,
  checks: figure(100_000, 900),
  ...counts,
  recorded_denied: 10,
  agreeing: 24_990,
  rules: [
    {
      rule_id: '12',
      rule: 'user:{user_id} [pro]',
      mode: 'enforce',
      is_changed: true,
      is_estimate: true,
      recorded_denied: 9,
      from_other_rules: figure(849, 31),
      ...counts,
    },
    {
      rule_id: '13',
      rule: 'user:{user_id} [pro] tried',
      mode: 'shadow',
      is_changed: false,
      is_estimate: true,
      recorded_denied: 0,
      from_other_rules: figure(0),
      ...counts,
    },
  ],
  more_rules: 0,
  plans: [{ plan: 'pro', checks: figure(60_000), ...counts }],
  users: Array.from({ length: 12 }, (_, index) => ({
    user_id: String(42 + index),
    ip: null,
    plan: 'pro',
    denied_then: 1,
    denied_now: 31,
    newly_denied: 30,
    no_longer_denied: 0,
  })),
  more_users: 3,
  steps: [
    {
      at: '2026-11-20T00:00:00Z',
      checks: 50_000,
      denied_then: 5,
      denied_now: 100,
      newly_denied: 98,
      no_longer_denied: 3,
    },
    {
      at: '2026-11-20T12:00:00Z',
      checks: 50_000,
      denied_then: 5,
      denied_now: 210,
      newly_denied: 207,
      no_longer_denied: 2,
    },
  ],
  step_seconds: 900,
  listed: [],
  left_out: [{ rule_id: '4', rule: 'attr.org:{attr.org}', why: 'only a sample was recorded' }],
  reserving: 0,
  dropped: 0,
  recorded_since: '2026-11-20T09:00:00Z',
  rules_known_since: '2026-11-20T06:30:00Z',
  notes: ['7 checks reserve tokens, and are left out.'],
};

test('a tenant that records nothing is told what recording costs, and an owner turns it on', async () => {
  const requests = fakeServer({
    'GET /api/v1/session': session(),
    [`GET ${acme}/recording`]: recording({
      record_days: 0,
      bytes: 0,
      checks: 0,
      seen: 0,
      oldest: null,
      newest: null,
    }),
    [`GET ${acme}/replays`]: page([]),
    [`PATCH ${acme}`]: () => problem(412, 'precondition-failed'),
  });
  const { user } = open('/t/acme/replays');
  expect(await screen.findByText(/Takes at most 512 MiB/)).toBeTruthy();
  await user.click(await screen.findByRole('button', { name: 'Record checks for 7 days' }));
  expect((await requested(requests, 'PATCH')).body).toEqual({ settings: { record_days: 7 } });
  expect(await screen.findByRole('alert')).toBeTruthy();
  expect(screen.queryByRole('button', { name: 'New replay' })).toBeNull();
});

test('a replay of a file is started with a sample and a seed, and opens', async () => {
  const requests = fakeServer({
    'GET /api/v1/session': session('editor'),
    [`GET ${acme}/recording`]: recording(),
    [`GET ${acme}/replays`]: page([replay()]),
    [`GET ${acme}/rules`]: page([rule()]),
    [`GET ${acme}/replays/7`]: replay(),
    [`POST ${acme}/replays`]: () => ({ status: 201, json: replay({ state: 'waiting', progress: 0 }) }),
    [`POST ${acme}/replays/7/cancel`]: replay({ state: 'canceled' }),
  });
  const { user, router } = open('/t/acme/replays');
  expect((await screen.findByRole('table', { name: 'Replays' })).textContent).toMatch(/Half the rate.*Running 40/);
  expect(screen.getByText(/100 MiB of 512 MiB/)).toBeTruthy();
  expect(screen.queryByLabelText('Days kept')).toBeNull(); // an editor may not
  await user.click(screen.getByRole('button', { name: 'New replay' }));
  const dialog = await screen.findByRole('dialog');
  await user.click(within(dialog).getByRole('radio', { name: 'Rules in YAML' }));
  await user.click(within(dialog).getByRole('textbox', { name: 'Rules in YAML' }));
  await user.paste('rules: []');
  await user.click(within(dialog).getByRole('radio', { name: '7 days' }));
  await user.selectOptions(within(dialog).getByLabelText('Sample'), '1 user of 16');
  await user.click(within(dialog).getByRole('button', { name: 'Start replay' }));
  await waitFor(() => expect(router.state.location.pathname).toBe('/t/acme/replays/7'));
  const body = requests.find(({ method }) => method === 'POST')?.body as Record<string, string>;
  expect(body).toMatchObject({
    title: 'Rules of a file',
    file: 'rules: []',
    prune: false,
    sample: 2,
    seed: 1,
  });
  expect(Date.parse(body.until ?? '') - Date.parse(body.since ?? '')).toBe(7 * 86_400_000);
  expect(await screen.findByText(/40.% of the time is replayed/)).toBeTruthy();
  await user.click(screen.getByRole('button', { name: 'Cancel' }));
  await waitFor(() => expect(requests.some(({ path }) => path.endsWith('/cancel'))).toBe(true));
});

function recordingServer(...rules: Rule[]) {
  return fakeServer({
    'GET /api/v1/session': session('editor'),
    [`GET ${acme}/recording`]: recording(),
    [`GET ${acme}/rules`]: page(rules),
    [`GET ${acme}/replays`]: page([]),
    [`GET ${acme}/replays/7`]: replay(),
    [`POST ${acme}/replays`]: () => ({ status: 201, json: replay({ state: 'waiting', progress: 0 }) }),
  });
}

const started = (requests: ReturnType<typeof fakeServer>) =>
  requests.find(({ method }) => method === 'POST')?.body as NewReplay | undefined;

test('half of a rule’s limit is replayed over yesterday, and back leads to the list', async () => {
  const requests = recordingServer(
    rule(),
    rule({ rule_id: '13', key_pattern: 'ip:{ip}', plan: null }),
    rule({ rule_id: '14', key_pattern: 'global', algorithm: 'concurrency' }),
  );
  const { user, router } = open('/t/acme/replays');
  await user.click((await screen.findAllByRole('button', { name: 'New replay' }))[0] as HTMLElement);
  const dialog = await screen.findByRole('dialog');
  const start = within(dialog).getByRole<HTMLButtonElement>('button', { name: 'Start replay' });
  const field = within(dialog).getByRole('combobox', { name: 'Rule' });
  await user.click(field);
  expect(screen.queryByRole('option', { name: /All requests/ })).toBeNull(); // nobody recorded releases
  await user.type(field, 'pro');
  await user.click(await screen.findByRole('option', { name: 'Each user · pro' }));
  expect(within(dialog).getByLabelText<HTMLInputElement>('Rate').value).toBe('10');
  expect(within(dialog).getByText(/Change the limit to replay it/)).toBeTruthy();
  expect(start.disabled).toBe(true);
  await user.click(within(dialog).getByRole('button', { name: 'Double' }));
  await user.click(within(dialog).getByRole('button', { name: 'Half' }));
  await user.click(within(dialog).getByRole('radio', { name: 'Yesterday' }));
  expect(within(dialog).getByText(/Recorded since/)).toBeTruthy();
  await user.click(start);
  await waitFor(() => expect(router.state.location.pathname).toBe('/t/acme/replays/7'));
  const { from, until } = dayBefore(Date.now());
  expect(started(requests)).toMatchObject({
    title: 'Each user · pro: 5 per second, bursts to 25',
    since: new Date(from).toISOString(),
    until: new Date(until).toISOString(),
    rules: [{ key_pattern: 'user:{user_id}', plan: 'pro', rate_per_second: 5, burst_capacity: 25 }],
  });
  router.history.back();
  await waitFor(() => expect(router.state.location.href).toBe('/t/acme/replays'));
});

test('a link has the rule, the limit and the time of a replay', async () => {
  const requests = recordingServer(rule({ is_active: false, mode: 'shadow' }));
  const [from, until] = [ago(2 * 86_400_000), ago(86_400_000)].map((at) => `${at.slice(0, 16)}:00Z`);
  const { user, router } = open(`/t/acme/replays?open=new&rule=12&rate=3/minute&burst=7&range=${from}~${until}`);
  const dialog = await screen.findByRole('dialog');
  expect((await within(dialog).findByLabelText<HTMLInputElement>('Rate')).value).toBe('3');
  expect(within(dialog).getByLabelText<HTMLInputElement>('Burst').value).toBe('7');
  expect(within(dialog).getByText(/The rule is off, and is on in the replay.*in shadow mode/)).toBeTruthy();
  await user.click(within(dialog).getByRole('button', { name: 'Start replay' }));
  await waitFor(() => expect(router.state.location.pathname).toBe('/t/acme/replays/7'));
  expect(started(requests)).toMatchObject({
    since: from?.replace('Z', '.000Z'),
    until: until?.replace('Z', '.000Z'),
    rules: [{ rate_per_second: 0.05, rate_unit: 'minute', burst_capacity: 7, is_active: true, mode: 'shadow' }],
  });
});

test('a time of which nothing was recorded is not replayed', async () => {
  recordingServer(rule());
  const { user, router } = open('/t/acme/replays?open=new&rule=12&burst=7');
  const dialog = await screen.findByRole('dialog');
  const start = within(dialog).getByRole<HTMLButtonElement>('button', { name: 'Start replay' });
  await waitFor(() => expect(start.disabled).toBe(false));
  await user.click(within(dialog).getByRole('radio', { name: 'From–until' }));
  const until = within(dialog).getByLabelText('Until');
  fireEvent.change(within(dialog).getByLabelText('From'), { target: { value: '2020-03-01T10:00' } });
  fireEvent.change(until, { target: { value: '2020-03-01T09:00' } });
  expect(within(dialog).getByText('The end must be later than the start.')).toBeTruthy();
  fireEvent.change(until, { target: { value: '2020-03-01T11:00' } });
  expect(within(dialog).getByText(/No checks were recorded before/)).toBeTruthy();
  expect(start.disabled).toBe(true);
  await user.click(within(dialog).getByRole('radio', { name: 'Yesterday' }));
  expect(start.disabled).toBe(false);
  await user.click(within(dialog).getByRole('button', { name: 'Cancel' }));
  await waitFor(() => expect(router.state.location.href).toBe('/t/acme/replays'));
  expect(screen.queryByRole('dialog')).toBeNull();
});

test('a result is shown in all, by rule, plan and user, with its error', async () => {
  fakeServer({
    'GET /api/v1/session': session('viewer'),
    [`GET ${acme}/replays/7`]: replay({ state: 'done', progress: 1, sample: 1, seed: 5, result }),
  });
  const { user } = open('/t/acme/replays/7');
  expect((await screen.findByRole('table', { name: 'By rule' })).textContent).toMatch(
    new RegExp(
      `^RuleDenied thenNewly deniedNo longer deniedFrom other rulesDenied with the changeEach user · ` +
        String.raw`pro changed10\+305 ± 19−5 ± 2\+849 ± 31310 ± 20$`,
    ),
  );
  const shadow = screen.getByRole('table', { name: 'In shadow mode' });
  expect(shadow.textContent).toMatch(/Each user · tried · pro 10\+305/);
  expect(screen.getByRole('table', { name: 'By plan' }).textContent).toMatch(/pro10\+305 ± 19−5 ± 2310 ± 20/);
  const users = screen.getByRole('table', { name: 'By user' });
  expect(users.textContent).toMatch(/42 pro1\+30031/);
  expect(within(users).getAllByRole('row')).toHaveLength(11);
  await user.click(screen.getByRole('button', { name: 'Show all 12' }));
  expect(within(users).getAllByRole('row')).toHaveLength(13);
  expect(screen.getByText(/These are counts of the sample/)).toBeTruthy();
  expect(screen.getByText(/Seed 5: the same seed gives the same result/)).toBeTruthy();
  const replayed = timeSpan(Date.parse('2026-11-20T09:00:00Z'), Date.parse('2026-11-21T00:00:00Z'));
  expect(screen.getByText(`Checks from ${replayed}, asked by `, { exact: false })).toBeTruthy();
  expect(screen.getByText(/^Without the change, the replay decides .* as they were decided then\.$/)).toBeTruthy();
  const recorded = exactTime(Date.parse('2026-11-20T09:00:00Z'));
  expect(screen.getByText(`Checks are recorded since ${recorded}; what came before is missing.`)).toBeTruthy();
  const known = exactTime(Date.parse('2026-11-20T06:30:00Z'));
  expect(screen.getByText(new RegExp(`knows the rules since ${known.replace('+', '\\+')};`))).toBeTruthy();
  expect(screen.getByText('7 checks reserve tokens, and are left out.')).toBeTruthy();
  expect(screen.getByText(/Left out/).textContent).toContain('only a sample was recorded');
  expect(screen.getByText('What left-out rules denied stays denied.')).toBeTruthy();
  expect(screen.getByText('And 3 more users.')).toBeTruthy();
});

test('a replay that failed says why', async () => {
  fakeServer({
    'GET /api/v1/session': session('viewer'),
    [`GET ${acme}/replays/7`]: replay({ state: 'failed', failure: 'No checks of this time were recorded.' }),
  });
  open('/t/acme/replays/7');
  expect(await screen.findByText('No checks of this time were recorded.')).toBeTruthy();
  expect(screen.queryByRole('button', { name: 'Cancel' })).toBeNull();
});

test('an edited limit of a rule is replayed, and the edit stays', async () => {
  const tagged = () => ({ json: rule(), headers: { ETag: '"3"' } });
  const requests = fakeServer({
    'GET /api/v1/session': session('editor'),
    [`GET ${acme}/rules/12`]: tagged,
    [`GET ${acme}/recording`]: recording(),
    [`POST ${acme}/replays`]: () => ({ status: 201, json: replay({ state: 'waiting', progress: 0 }) }),
    [`POST ${acme}/effect`]: () => problem(503, 'unavailable'),
    [`GET ${acme}/stats/series`]: () => problem(503, 'unavailable'),
    [`GET ${acme}/stats/summary`]: () => problem(503, 'unavailable'),
    [`GET ${acme}/audit`]: page([]),
    [`GET ${acme}/plans`]: page([]),
    [`GET ${acme}/rules`]: page([rule()]),
    [`GET ${acme}/rules/12/overrides`]: page([]),
    [`GET ${acme}/adapting`]: { items: [] },
  });
  const { user } = open('/t/acme/rules/12');
  const link = await screen.findByRole<HTMLAnchorElement>('link', { name: 'Replay another limit' });
  expect(link.getAttribute('href')).toBe('/t/acme/replays?open=new&rule=12');
  const burst = await screen.findByLabelText(/^Burst/);
  await user.retype(burst, '20');
  await user.click(await screen.findByText(/^Effect:/));
  await user.click(await screen.findByRole('button', { name: 'Replay all' }));
  await user.click(within(await screen.findByRole('dialog')).getByRole('button', { name: 'Start replay' }));
  expect(await screen.findByRole('link', { name: 'Open the replay in a new tab' })).toBeTruthy();
  const body = requests.find(({ path }) => path.endsWith('/replays'))?.body as { rules: object[] };
  expect(body.rules).toMatchObject([{ key_pattern: 'user:{user_id}', plan: 'pro', burst_capacity: 20 }]);
  await user.keyboard('{Escape}');
  expect((await screen.findByLabelText<HTMLInputElement>(/^Burst/)).value).toBe('20');
});
