import { cleanup, screen, waitFor, within } from '@testing-library/react';
import { expect, test } from 'vitest';
import { auditEntry, page, plan, problem, requested, rule, session } from '../../../test/fake';
import { open } from '../../../test/render';
import {
  bucket,
  crossing,
  detailed,
  exported,
  override,
  quota,
  readyExport,
  user as someUser,
  violation,
} from '../../../test/traffic';
import { base, its, tag, userServer } from '../../../test/users';

test('a user with more than is shown says so, and shows more overrides', async () => {
  const json = someUser({ overrides: [override()], has_more_overrides: true });
  const last = override({ rule_id: '77', reason: 'the last of all' });
  userServer({
    'GET /api/v1/tenants/acme/overrides': ({ query }: { query: URLSearchParams }) => {
      expect(query.get('user_id')).toBe('42');
      const isLast = query.has('cursor');
      return { json: { items: [isLast ? last : override()], next_cursor: isLast ? null : 'next' } };
    },
    [`GET ${its}`]: () => ({ json, headers: tag }),
    [`GET ${its}/buckets`]: { items: [bucket()], has_more: true },
  });
  const { user } = open('/t/acme/users/42');
  await user.click(await screen.findByRole('button', { name: 'Show more' }));
  expect(await screen.findByText('the last of all')).toBeDefined();
  expect(screen.queryByRole('button', { name: 'Show more' })).toBeNull();
  expect(await screen.findByText(/^Only buckets of the first 500 rules/)).toBeDefined();
});

test('the page of an id of which nothing is known says so first', async () => {
  let known = false;
  userServer({ [`GET ${its}`]: () => ({ json: someUser({ known }), headers: tag }) });
  const { queries } = open('/t/acme/users/42');
  expect(await screen.findByText(/Nothing is known of user 42: no check in 13 months/)).toBeDefined();
  known = true;
  await queries.invalidateQueries();
  await waitFor(() => expect(screen.queryByText(/Nothing is known/)).toBeNull());
});

test('the plan changes with the tag that was read, after the limits of both were shown', async () => {
  const requests = userServer({
    [`PUT ${its}/plan`]: () => ({ json: someUser({ plan: 'pro' }), headers: tag }),
  });
  const { user } = open('/t/acme/users/42');
  await user.click(await screen.findByRole('button', { name: 'Change plan' }));
  const dialog = await screen.findByRole('dialog', { name: 'Change the plan of user 42' });
  await user.selectOptions(within(dialog).getByLabelText('Plan'), 'pro');
  expect(within(dialog).getByText(/100 per second, bursts to 500/)).toBeDefined();
  await user.click(within(dialog).getByRole('button', { name: 'Change plan' }));
  const sent = await requested(requests, 'PUT');
  expect(sent?.body).toEqual({ plan: 'pro' });
  expect(sent?.headers.get('If-Match')).toBe('"0"');
});

test('a change of plan waits for the plans and their limits before it offers them', async () => {
  let answer = (_: { json: unknown }) => {};
  userServer({ [`GET ${base}/plans`]: () => new Promise((resolve) => (answer = resolve)) });
  const { user } = open('/t/acme/users/42');
  await user.click(await screen.findByRole('button', { name: 'Change plan' }));
  expect(screen.queryByRole('dialog')).toBeNull();
  answer({ json: page([plan('free', { is_default: true }), plan('pro')]) });
  const choice = within(await screen.findByRole('dialog')).getByLabelText('Plan');
  expect(within(choice).getByRole('option', { name: 'pro' })).toBeDefined();
});

test('a user whose plan the service sends is shown on that plan, and on any other that is chosen', async () => {
  const json = someUser({ sent_plan: 'pro', recent_violations: [violation({ plan: 'pro', rule_id: '13' })] });
  userServer({
    [`GET ${its}`]: () => ({ json, headers: tag }),
    [`GET ${its}/buckets`]: ({ query }: { query: URLSearchParams }) => ({
      json: { items: [bucket({ limit_text: `the limit of ${query.get('plan')}` })], has_more: false },
    }),
  });
  const { user } = open('/t/acme/users/42');
  expect(await screen.findByText('Plan pro · sent by the service')).toBeDefined();
  expect(await screen.findByText('the limit of pro')).toBeDefined();
  const choice = await screen.findByLabelText('Plan of the buckets');
  expect(choice).toHaveProperty('value', 'pro');
  await user.selectOptions(choice, 'free');
  expect(await screen.findByText('the limit of free')).toBeDefined();

  await user.click(screen.getByRole('button', { name: 'New override' }));
  let dialog = await screen.findByRole('dialog', { name: 'New override for user 42' });
  expect(within(dialog).queryByText(/is on (free|pro)/)).toBeNull();
  expect(within(dialog).getByRole('group', { name: 'Plan pro' })).toBeDefined();
  await user.selectOptions(within(dialog).getByLabelText('Rule'), '12');
  expect(
    await within(dialog).findByText('User 42 is on pro, so the override applies only to checks on the plan free.'),
  ).toBeDefined();
  await user.click(within(dialog).getByRole('button', { name: 'Cancel' }));

  await user.click(await screen.findByRole('button', { name: 'Change plan' }));
  dialog = await screen.findByRole('dialog', { name: 'Change the plan of user 42' });
  expect(within(dialog).getByText(/^The service sends the plan pro/)).toBeDefined();
});

test('a bucket can be filled up and credited', async () => {
  const change = { bucket_key: '12:42', tokens_before: 20, tokens_after: 50, burst_capacity: 50 };
  const requests = userServer({
    [`POST ${its}/buckets/reset`]: change,
    [`POST ${its}/buckets/credit`]: { ...change, tokens_after: 10 },
  });
  const { user } = open('/t/acme/users/42');
  const menu = await screen.findByRole('button', { name: /^Actions for the bucket of Each user/ });
  await user.click(menu);
  await user.click(await screen.findByText('Refill'));
  const ask = await screen.findByRole('dialog', { name: 'Refill this bucket?' });
  await user.click(within(ask).getByRole('button', { name: 'Refill' }));
  expect(await screen.findByText('Bucket refilled to 50 tokens')).toBeDefined();
  await user.click(menu);
  await user.click(await screen.findByText('Adjust tokens'));
  const field = await screen.findByLabelText('Tokens');
  await user.retype(field, '-10');
  await user.click(screen.getByRole('button', { name: 'Take tokens' }));
  expect(await screen.findByText('Bucket set to 10 tokens')).toBeDefined();
  expect(requests.filter(({ method }) => method === 'POST').map(({ body }) => body)).toEqual([
    { bucket_key: '12:42' },
    { bucket_key: '12:42', tokens: -10 },
  ]);
});

test('buckets and quotas of other meters say what they hold', async () => {
  userServer({
    [`GET ${its}/buckets`]: {
      items: [
        bucket({ name: 'input_tokens', meter: 'input_tokens', tokens: 1_234_567, burst_capacity: 2_000_000 }),
        quota({ name: 'monthly', meter: 'usd', tokens: 0.75, burst_capacity: 100 }),
      ],
      has_more: false,
    },
  });
  open('/t/acme/users/42');
  const tokens = await screen.findByRole('meter', {
    name: 'Input tokens in the bucket of Each user · input tokens · free',
  });
  expect(tokens.parentElement?.textContent).toMatch(/^1\.2.M of 2\.0.M input tokens left/);
  const money = screen.getByRole('meter', { name: 'Use of Each user · USD · monthly · free' });
  expect(money.parentElement?.textContent).toMatch(/^99\.25 of 100 USD used(?!, used up)/);
});

test('buckets in the memory of other processes are said to be there', async () => {
  userServer({ [`GET ${its}/buckets`]: () => problem(409, 'no-shared-store') });
  open('/t/acme/users/42');
  expect(await screen.findByText('Buckets are not visible here')).toBeDefined();
});

test('a quota shows its use, its override and the end of its window in the rule’s zone', async () => {
  userServer({
    [`GET ${its}/buckets`]: {
      items: [
        bucket(),
        quota({ overridden: true }),
        quota({ bucket_key: '16:42', name: 'daily', tokens: 0, burst_capacity: 100 }),
      ],
      has_more: false,
    },
  });
  open('/t/acme/users/42');
  const quotas = await screen.findByRole('list', { name: 'Quotas' });
  const [monthly, daily] = within(quotas).getAllByRole('listitem');
  expect(monthly?.textContent).toMatch(/8,012 of 10,000 used.*until 1 Dec 2026, 00:00 Europe\/Berlin/);
  expect(within(monthly as HTMLElement).getByText('Override')).toBeDefined();
  const meter = within(monthly as HTMLElement).getByRole('meter');
  expect(meter.getAttribute('aria-valuenow')).toBe('8012');
  expect(daily?.textContent).toMatch(/100 of 100 used, used up/);
  const buckets = screen.getByRole('list', { name: 'Buckets' });
  expect(within(buckets).getAllByRole('listitem')).toHaveLength(1);
});

test('what a bucket has lent to processes is said beside its level, and where it is refilled', async () => {
  userServer({
    [`GET ${its}/buckets`]: {
      items: [bucket({ tokens: 38, burst_capacity: 50, lent: { tokens: 12, processes: 3 } })],
      has_more: false,
    },
  });
  const { user } = open('/t/acme/users/42');
  const row = within(await screen.findByRole('list', { name: 'Buckets' })).getByRole('listitem');
  expect(row.textContent).toMatch(/38 of 50 tokens.*full.*12 more lent to 3 processes/);
  await user.click(within(row).getByRole('button', { name: /^Actions for the bucket/ }));
  await user.click(await screen.findByRole('menuitem', { name: /Refill/ }));
  expect((await screen.findByRole('dialog')).textContent).toMatch(
    /can use all 38 tokens.*beside 12 that are lent to processes/,
  );
});

test('cards of what a user does not have are not shown', async () => {
  userServer();
  open('/t/acme/users/42');
  await screen.findByRole('heading', { name: 'Buckets' });
  for (const name of ['Quotas', 'Threshold events']) expect(screen.queryByRole('heading', { name })).toBeNull();
});

test('quotas whose store is away say so, and are read again', async () => {
  let isAway = true;
  userServer({
    [`GET ${its}/buckets`]: () =>
      isAway ? problem(503, 'unavailable') : { json: { items: [quota()], has_more: false } },
  });
  const { user } = open('/t/acme/users/42');
  const alert = await screen.findByRole('alert');
  isAway = false;
  await user.click(within(alert).getByRole('button', { name: 'Try again' }));
  expect(await screen.findByRole('list', { name: 'Quotas' })).toBeDefined();
});

test('crossings of the user’s quotas are listed page by page', async () => {
  userServer({
    [`GET ${base}/rules`]: page([rule({ rule_id: '15', name: 'monthly', window_zone: 'Europe/Berlin' })]),
    [`GET ${base}/crossings`]: ({ query }: { query: URLSearchParams }) => {
      expect(query.get('user_id')).toBe('42');
      return query.has('cursor')
        ? {
            json: page([crossing({ crossing_id: '50', rule_id: '99', name: 'old', share: 100, mode: 'shadow' })]),
          }
        : { json: { items: [crossing()], next_cursor: 'next' } };
    },
  });
  const { user } = open('/t/acme/users/42');
  const list = await screen.findByRole('list', { name: 'Crossings' });
  expect(list.textContent).toMatch(
    new RegExp(
      '80.% of Each user monthly.*8,000 of 10,000 used; window until 1 Dec 2026, 00:00 ' +
        String.raw`Europe\/Berlin.*1[123] Nov, \d\d:\d\d`,
    ),
  );
  await user.click(screen.getByRole('button', { name: 'Show more' }));
  await waitFor(() => expect(within(list).getAllByRole('listitem')).toHaveLength(2));
  expect(within(list).getAllByRole('listitem')[1]?.textContent).toMatch(/100.% of Each user old · removed/);
});

test('a viewer sees all of it, and no button that would fail', async () => {
  userServer({ 'GET /api/v1/session': session('viewer') }, () => [override()]);
  open('/t/acme/users/42?override=12');
  expect(await screen.findByText('migration week')).toBeDefined();
  expect(await screen.findByRole('meter')).toBeDefined();
  for (const name of [/New override/, /Change/, /End/, /Actions/]) {
    expect(screen.queryByRole('button', { name })).toBeNull();
  }
  expect(screen.queryByRole('dialog')).toBeNull();
});

test('a recent denial opens its story', async () => {
  userServer({
    [`GET ${base}/violations/${violation().violation_id}`]: detailed(violation()),
  });
  const { user } = open('/t/acme/users/42');
  await user.click(await screen.findByText('GET /api/search'));
  expect(await screen.findByText(/^User 42 on free was denied 11 times/)).toBeDefined();
});

test('the time line has the name of a rule that was removed with its overrides', async () => {
  const entry = auditEntry({
    action: 'remove',
    object: { kind: 'override', id: '77:42' },
    before: { burst_capacity: 500 },
    after: null,
  });
  userServer({
    [`GET ${its}/story`]: page([{ at: entry.at, denials: null, entry }]),
    [`GET ${base}/audit`]: page([
      auditEntry({
        action: 'remove',
        object: { kind: 'rule', id: '77' },
        before: { ...rule({ rule_id: '77', name: 'spring', plan: null }) },
        after: null,
      }),
    ]),
  });
  open('/t/acme/users/42');
  const story = await screen.findByRole('list', { name: 'Time line' });
  await within(story).findByText('Removed');
  expect(story.textContent).toMatch(/the override of Each user spring · all plans Removed/);
});

test('the time line says who blocked the user, and until when', async () => {
  const entry = auditEntry({
    action: 'create',
    object: { kind: 'rule', id: '21' },
    before: null,
    after: {
      ...rule({ rule_id: '21', key_pattern: 'user:42', action: 'block', expires_at: '2026-11-20T13:00:00Z' }),
    },
  });
  userServer({
    [`GET ${base}/rules`]: page([rule({ rule_id: '21', key_pattern: 'user:42', name: 'temporary' })]),
    [`GET ${its}/story`]: page([{ at: entry.at, denials: null, entry }]),
  });
  open('/t/acme/users/42');
  const story = await screen.findByRole('list', { name: 'Time line' });
  await within(story).findByText(/User 42/);
  expect(story.textContent).toMatch(
    /Ruleada@example.com created User 42 temporary · pro: Action Always denied, Ends 20 Nov 2026/,
  );
  expect(story.textContent).not.toMatch(/Burst/);
});

const receiptOf42 = {
  receipt_id: 'erased-1',
  requested_at: '2026-11-20T12:00:00Z',
  finished_at: '2026-11-20T12:00:05Z',
  error: '',
  next_try_at: null,
  steps: [
    { name: 'overrides', rows: 2, finished_at: '2026-11-20T12:00:01Z' },
    { name: 'violations', rows: 12, finished_at: '2026-11-20T12:00:04Z' },
  ],
  rules: [12],
};

test('a rule is not said to be removed while the rules load', async () => {
  let answer = (_: { json: unknown }) => {};
  const entry = auditEntry({ action: 'update', object: { kind: 'override', id: '12:42' } });
  const requests = userServer({
    [`GET ${base}/rules`]: () => new Promise((resolve) => (answer = resolve)),
    [`GET ${its}/story`]: page([{ at: entry.at, denials: null, entry }]),
    [`GET ${base}/crossings`]: page([crossing({ rule_id: '12' })]),
  });
  open('/t/acme/users/42');
  const story = await screen.findByRole('list', { name: 'Time line' });
  const crossings = await screen.findByRole('list', { name: 'Crossings' });
  for (const list of [story, crossings]) expect(list.textContent).not.toMatch(/removed/i);
  expect(requests.filter(({ path }) => path.endsWith('/audit'))).toEqual([]);
  answer({ json: page([rule({ name: 'hourly' })]) });
  await within(story).findByText('Each user');
  expect(story.textContent).toMatch(/the override of Each user hourly/);
});

test('a user is erased after the id was typed, and progress and receipt are shown', async () => {
  const [overrides, violations] = receiptOf42.steps;
  let erasure: object = {
    ...receiptOf42,
    finished_at: null,
    error: 'The step violations failed: the database was away, busy or full.',
    next_try_at: new Date(Date.now() + 90_000).toISOString(),
    steps: [overrides, { ...violations, rows: 0, finished_at: null }],
    rules: [],
  };
  let usage = [{ month: '2026-11', allowed: 9, denied: 3, cost: 9, costs: { input_tokens: 1_250_000, usd: 0.75 } }];
  const requests = userServer({
    [`GET ${its}/usage`]: () => ({ json: { items: usage, as_of: '2026-11-26T17:06:12Z' } }),
    [`POST ${its}/erase`]: () => ({ status: 202, json: { ...receiptOf42, finished_at: null, steps: [], rules: [] } }),
    [`GET ${base}/erasures/erased-1`]: () => ({ json: erasure }),
  });
  const { user, router } = open('/t/acme/users/42');
  const months = await screen.findByRole('table', { name: 'Usage per month' });
  expect(months.textContent).toMatch(/CostInput tokensUSD.*Nov 2026.*9391\.3.M0\.75/);
  await user.click(await screen.findByRole('button', { name: 'More actions for user 42' }));
  await user.click(await screen.findByRole('menuitem', { name: 'Erase user' }));
  const dialog = await screen.findByRole('dialog', { name: 'Erase user 42?' });
  const erase = within(dialog).getByRole('button', { name: 'Erase user' });
  expect(erase).toHaveProperty('disabled', true);
  await user.type(within(dialog).getByLabelText('Type 42 to confirm'), '42');
  await user.click(erase);
  const progress = await screen.findByRole('dialog', { name: 'Erasing user' });
  await within(progress).findByRole('progressbar', { name: 'Steps done' });
  expect(progress.textContent).toMatch(/erased-1.*Overrides2Violations…/);
  expect(within(progress).getByRole('alert').textContent).toMatch(/away, busy or full. Next try: in/);
  expect(router.state.location.search).toMatchObject({ erasure: 'erased-1' }); // a reload shows it again
  usage = [];
  erasure = receiptOf42;
  const receipt = await screen.findByRole('dialog', { name: 'User erased' }, { timeout: 5_000 });
  expect(receipt.textContent).toMatch(
    /erased-1.*Overrides2Violations12Kept, because its pattern names this user: rule 12/,
  );
  expect(requests.find(({ method }) => method === 'POST')?.body).toEqual({ confirm: '42' });
  await user.click(within(receipt).getByRole('button', { name: 'Close' }));
  await waitFor(() => expect(screen.queryByText('Usage per month')).toBeNull());
});

test('an export of the data shows its progress, also after a reload, and then its file', async () => {
  const waiting = exported({
    error: 'The latest try failed: the database was away, busy or full.',
    next_try_at: new Date(Date.now() + 90_000).toISOString(),
  });
  let answer: object = waiting;
  const requests = userServer({
    [`POST ${its}/data`]: () => ({ status: 202, json: exported({ rows: 0 }) }),
    [`GET ${base}/exports/7`]: () => ({ json: answer }),
  });
  const { user, router } = open('/t/acme/users/42');
  await user.click(await screen.findByRole('button', { name: 'More actions for user 42' }));
  await user.click(await screen.findByRole('menuitem', { name: 'Export data' }));
  const progress = await screen.findByRole('dialog', { name: 'Exporting' });
  await within(progress).findByText(/1,200 rows so far/);
  expect(within(progress).getByRole('progressbar', { name: 'Export' })).toBeDefined();
  expect(within(progress).getByRole('alert').textContent).toMatch(/away, busy or full. Next try: in/);
  expect(requests.filter(({ method }) => method === 'POST')).toHaveLength(1);
  expect(router.state.location.search).toMatchObject({ export: '7' }); // a reload shows it again
  answer = readyExport();
  const ready = await screen.findByRole('dialog', { name: 'Export ready' }, { timeout: 5_000 });
  const file = within(ready).getByRole('link', { name: 'Download' });
  expect(file.getAttribute('href')).toBe(`${base}/exports/7/file`);
  expect(within(ready).queryByRole('progressbar')).toBeNull();
  await user.click(within(ready).getByRole('button', { name: 'Close' }));
  await waitFor(() => expect(router.state.location.search).not.toHaveProperty('export'));
});

test('an export that failed says what to do, and one that is gone says so', async () => {
  const error = 'The file is larger than 128 MB compressed. Export a shorter time, or with a filter.';
  userServer({
    [`GET ${base}/exports/7`]: readyExport({ file: null, error }),
    [`GET ${base}/exports/8`]: () => problem(404, 'not-found', { detail: 'It expired.' }),
  });
  open('/t/acme/users/42?export=7');
  const none = await screen.findByRole('dialog', { name: 'No file' });
  expect((await within(none).findByRole('alert')).textContent).toMatch(/Export a shorter time/);
  expect(within(none).queryByRole('link', { name: 'Download' })).toBeNull();
  cleanup();
  open('/t/acme/users/42?export=8');
  expect(await screen.findByText('It expired.')).toBeDefined();
});
