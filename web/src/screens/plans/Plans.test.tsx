import { cleanup, screen, waitFor, within } from '@testing-library/react';
import { afterEach, expect, test, vi } from 'vitest';
import { effect, fakeServer, page, plan, problem, requested, rule, session } from '../../../test/fake';
import { open } from '../../../test/render';
import { top } from '../../../test/traffic';
import { noteServerTime } from '../../api/clock';
import { multiplied } from './ChangeMany';
import { cellId } from './draft';

const free = rule({ rule_id: '1', plan: 'free', version: 1 });
const pro = rule({ rule_id: '2', plan: 'pro', rate_per_second: 50, burst_capacity: 250, version: 3 });
const row = { key_pattern: 'user:{user_id}', name: '', scope: 'user', rules: [free, pro] };

const world = (role: 'viewer' | 'editor' = 'editor') => ({
  'GET /api/v1/session': session(role),
  'GET /api/v1/tenants/acme/plans': page([plan('free', { is_default: true }), plan('pro')]),
  'GET /api/v1/tenants/acme/matrix': page([row]),
  'GET /api/v1/tenants/acme/stats/top': top('rule', [{ value: '1', denied: 412, checks: 1840 }]),
});

async function cell(name: string) {
  const grid = await screen.findByRole('grid', { name: 'Limits by plan' });
  const columns = within(grid).getAllByRole('columnheader');
  const at = columns.findIndex((column) => column.textContent?.startsWith(name));
  return within(grid).getAllByRole('cell')[at - 1] as HTMLElement;
}

type User = ReturnType<typeof open>['user'];

async function edit(column: string, keys: string) {
  const opened = open('/t/acme/plans');
  (await cell(column)).focus();
  await opened.user.keyboard(keys);
  return opened;
}

async function review(user: User) {
  await user.click(await screen.findByRole('button', { name: 'Review changes' }));
  return screen.findByRole('dialog');
}

async function columns() {
  const headers = await screen.findAllByRole('columnheader');
  return headers.map(({ textContent }) => textContent?.replace(/(default|\d).*/, ''));
}

test('plans stand in the order in which the server names them, whatever their rates are', async () => {
  fakeServer({
    ...world(),
    'GET /api/v1/tenants/acme/plans': page([plan('enterprise'), plan('free'), plan('pro')]),
  });
  open('/t/acme/plans');
  expect(await columns()).toEqual(['Rule', 'enterprise', 'free', 'pro', 'All plans']);
});

test('rows of another meter stand together, say so, and give it to new limits', async () => {
  const tokens = rule({
    rule_id: '5',
    plan: 'free',
    name: 'usd',
    meter: 'usd',
    burst_capacity: 1_200_000,
    charge: 'after',
  });
  const requests = fakeServer({
    ...world(),
    'GET /api/v1/tenants/acme/matrix': page([
      { ...row, key_pattern: 'global', name: 'usd', rules: [tokens] },
      { ...row, rules: [free, pro] },
    ]),
    'POST /api/v1/tenants/acme/matrix': { dry_run: true, text: '', changes: [] },
  });
  const { user } = open('/t/acme/plans');
  const grid = await screen.findByRole('grid', { name: 'Limits by plan' });
  expect(Array.from(grid.querySelectorAll('tbody tr'), (one) => one.textContent?.split(/user:|global/)[0])).toEqual([
    'Requests',
    'Each user',
    'USD',
    'All requestsUSD',
  ]);
  expect(within(grid).getByText('10 USD/s').parentElement?.textContent).toBe('10 USD/sburst 1.2\u202fM USD');
  const empty = grid.querySelector<HTMLElement>('tr[data-index="1"] td[data-plan="pro"]');
  empty?.focus();
  await user.keyboard('20/s{Enter}');
  await user.click(screen.getByRole('button', { name: 'Review changes' }));
  await screen.findByRole('dialog');
  expect((await requested(requests, 'POST')).body).toMatchObject({
    cells: [{ key_pattern: 'global', name: 'usd', plan: 'pro', meter: 'usd', charge: 'after', rate_per_second: 20 }],
  });
});

test('a cell says what it denied', async () => {
  fakeServer(world());
  open('/t/acme/plans');
  expect((await cell('free')).textContent).toMatch(/10\/s.*burst 50/);
  await waitFor(async () => expect((await cell('free')).textContent).toMatch(/412 denied in the last hour/));
});

test('typing into a cell collects a change, which is reviewed and saved as one', async () => {
  const diff = {
    dry_run: true,
    text: '',
    changes: [{ change: 'update', before: pro, after: { ...pro, burst_capacity: 300 } }],
  };
  const requests = fakeServer({ ...world(), 'POST /api/v1/tenants/acme/matrix': diff });
  const { user } = await edit('pro', '80/s{Tab}');
  await user.clear(screen.getByRole('textbox', { name: /Burst/ }));
  await user.keyboard('300{Enter}');
  expect((await cell('pro')).textContent).toMatch(/80\/s.*burst 300.*50\/s/);
  const dialog = await review(user);
  expect(await within(dialog).findByText('50 per second, bursts to 300')).toBeDefined();
  await user.click(within(dialog).getByRole('button', { name: 'Save' }));
  await waitFor(() => expect(screen.queryByText('1 change not saved')).toBeNull());
  expect(
    requests
      .filter(({ path }) => path.endsWith('/matrix'))
      .filter(({ method }) => method === 'POST')
      .map(({ body }) => body),
  ).toEqual(
    [true, false].map((dry_run) => ({
      dry_run,
      cells: [{ rule_id: '2', version: 3, rate_per_second: 80, rate_unit: 'second', burst_capacity: 300 }],
    })),
  );
});

test.each([
  ['nobody else has saved', '"8"', 1],
  ['somebody else has saved', '"9"', 2],
])(
  'a save shows what it is answered, and the matrix is read again only if others have saved: %s',
  async (_, savedAs, readings) => {
    const after = { ...pro, rate_per_second: 80, rate: '80/second', version: 4 };
    const diff = { dry_run: false, text: '', changes: [{ change: 'update', before: pro, after }] };
    let saved = false;
    let read = 0;
    fakeServer({
      ...world(),
      'GET /api/v1/tenants/acme/matrix': ({ headers }: { headers: Headers }) => {
        const etag = saved ? savedAs : '"7"';
        if (headers.get('If-None-Match') === etag) return { status: 304 };
        read++;
        return { json: page([saved ? { ...row, rules: [free, after] } : row]), headers: { ETag: etag } };
      },
      'POST /api/v1/tenants/acme/matrix': ({ body: { dry_run } }: { body: { dry_run: boolean } }) => {
        saved = !dry_run;
        return { json: { ...diff, dry_run }, headers: dry_run ? {} : { ETag: savedAs } };
      },
    });
    const { user } = open('/t/acme/plans');
    (await cell('pro')).focus();
    await user.keyboard('80/s{Enter}');
    await user.click(screen.getByRole('button', { name: 'Review changes' }));
    await user.click(await screen.findByRole('button', { name: 'Save' }));
    await waitFor(() => expect(screen.queryByText('1 change not saved')).toBeNull());
    expect((await cell('pro')).textContent).toMatch(/80\/s/);
    expect(read).toBe(readings);
  },
);

test('a limit that cannot be is said while it is typed, and Escape leaves the cell as it was', async () => {
  fakeServer(world());
  const { user } = await edit('pro', '0{Enter}');
  expect((await screen.findByRole('alert')).textContent).toMatch(/must be from 0.000001/);
  await user.keyboard('{Escape}');
  expect((await cell('pro')).textContent).toMatch(/50\/s/);
  expect(screen.queryByText(/not saved/)).toBeNull();
});

test('what the server has against a cell is said in that cell', async () => {
  const errors = [{ pointer: '/cells/0/burst_capacity', detail: 'must be at most 7' }];
  fakeServer({
    ...world(),
    'POST /api/v1/tenants/acme/matrix': () => problem(400, 'invalid-request', { errors }),
  });
  const { user } = await edit('pro', '80/s{Enter}');
  await user.click(await screen.findByRole('button', { name: 'Review changes' }));
  await waitFor(async () => expect((await cell('pro')).textContent).toMatch(/The burst must be at most 7/));
});

test('a viewer walks the cells and changes nothing', async () => {
  fakeServer(world('viewer'));
  await edit('pro', '9{Enter}{Delete}');
  expect(screen.queryByRole('textbox')).toBeNull();
  expect(screen.queryByText(/not saved/)).toBeNull();
  expect(screen.queryByRole('button', { name: 'Add rule' })).toBeNull();
});

test('what is no limit stays in its cell, marked, and keeps the changes from being saved', async () => {
  fakeServer(world());
  const { user } = await edit('pro', '5o/s');
  await user.click(await cell('free'));
  expect((await cell('pro')).textContent).toMatch(/5o\/s.*The rate must be a number per second/);
  expect(screen.getByRole('button', { name: 'Review changes' })).toHaveProperty('disabled', true);
  (await cell('pro')).focus();
  await user.keyboard('{Enter}');
  expect(screen.getByRole('textbox', { name: /Rate/ })).toHaveProperty('value', '5o/s');
  await user.keyboard('{Escape}');
  expect((await cell('pro')).textContent).toMatch(/50\/s/);
  expect(screen.queryByRole('button', { name: 'Review changes' })).toBeNull();
});

test('a cell that is opened and left as it was is no change, whatever its rate', async () => {
  const odd = rule({ rule_id: '1', plan: 'free', rate_per_second: (1000 / 86400) * 10, rate_unit: 'day' });
  fakeServer({
    ...world(),
    'GET /api/v1/tenants/acme/matrix': page([{ ...row, rules: [odd, pro] }]),
  });
  const { user } = open('/t/acme/plans');
  (await cell('free')).focus();
  expect((await cell('free')).textContent).toMatch(/10,000\/d/);
  await user.keyboard('{Enter}{Enter}');
  expect(screen.queryByText(/not saved/)).toBeNull();
});

test('a cell that was opened and left empty gives the focus away', async () => {
  fakeServer({ ...world(), 'GET /api/v1/tenants/acme/matrix': page([{ ...row, rules: [pro] }]) });
  const { user } = await edit('free', '{Enter}');
  await user.click(await cell('All plans'));
  await user.keyboard('7');
  expect(screen.getByRole('textbox', { name: /Rate of Each user, all plans/ })).toHaveProperty('value', '7');
});

test('the limit of all plans stands in the cells that have none, and can be split by one press', async () => {
  const all = rule({ rule_id: '3', plan: null, rate_per_second: 0.1, rate_unit: 'minute', burst_capacity: 6 });
  fakeServer({ ...world(), 'GET /api/v1/tenants/acme/matrix': page([{ ...row, rules: [pro, all] }]) });
  const { user } = open('/t/acme/plans');
  expect((await cell('free')).textContent).toMatch(/6\/min.*All plans/);
  expect((await cell('pro')).textContent).toMatch(/Limited to 6\/min, burst 6 by All plans/);
  await user.click(screen.getByRole('button', { name: /^Separate limits/ }));
  expect((await cell('free')).textContent).toMatch(/^6\/minburst 6$/);
  expect((await cell('pro')).textContent).not.toMatch(/Limited to/);
  expect((await cell('All plans')).textContent).toMatch(/removed/);
  expect(screen.getByText('2 changes not saved')).toBeDefined();
});

test('raising one plan above the limit of all plans is one change', async () => {
  const all = rule({ rule_id: '3', plan: null, rate_per_second: 0.1, rate_unit: 'minute', burst_capacity: 6 });
  const ofFree = { ...all, rule_id: '0', plan: 'free' };
  const ofPro = { ...all, rule_id: '0', plan: 'pro', rate_per_second: 1, burst_capacity: 60 };
  const diff = {
    dry_run: true,
    text: '',
    changes: [
      { change: 'create', after: ofPro },
      { change: 'create', after: ofFree },
      { change: 'remove', before: all },
    ],
  };
  const requests = fakeServer({
    ...world(),
    'GET /api/v1/tenants/acme/matrix': page([{ ...row, rules: [all] }]),
    'POST /api/v1/tenants/acme/matrix': diff,
  });
  const { user } = await edit('pro', '60/min{Enter}');
  expect((await cell('pro')).textContent).toMatch(/60\/min.*the others stay 6\/min/);
  expect((await cell('free')).textContent).toMatch(/6\/min.*All plans/);
  expect(screen.getByText('1 change not saved')).toBeDefined();
  await user.click(screen.getByRole('button', { name: 'Review changes' }));
  const dialog = await screen.findByRole('dialog', { name: 'Save 1 change?' });
  const items = await within(dialog).findAllByRole('listitem');
  expect(items).toHaveLength(1);
  expect(items[0]?.textContent).toMatch(
    /6 per minute, bursts to 6.*60 per minute, bursts to 60.*The others stay at 6 per minute, bursts to 6\./,
  );
  await user.click(within(dialog).getByRole('button', { name: 'Save' }));
  expect(await screen.findByText(/1 change saved/)).toBeDefined();
  expect(
    requests.filter(({ path, method }) => path.endsWith('/matrix') && method === 'POST').at(-1)?.body,
  ).toMatchObject({
    dry_run: false,
    cells: [{ plan: 'pro' }, { plan: 'free', rate_per_second: 0.1 }, { rule_id: '3', remove: true }],
  });
});

test('a column is moved, and a plan is removed with a plan for its users', async () => {
  let usersTo: string | null = null;
  const plans = [
    plan('free', { is_default: true, position: 1 }),
    plan('pro', { position: 2, users: 12, rules: 3 }),
    plan('gold', { position: 3 }),
  ];
  const requests = fakeServer({
    ...world(),
    'GET /api/v1/tenants/acme/plans': page([...plans].sort((a, b) => (a.name < b.name ? -1 : 1))),
    'PATCH /api/v1/tenants/acme/plans/gold': { ...plans[2], position: 1.5 },
    'DELETE /api/v1/tenants/acme/plans/pro': ({ query }: { query: URLSearchParams }) => {
      usersTo = query.get('users_to');
      return { status: 204 };
    },
  });
  const { user } = open('/t/acme/plans');
  expect(await columns()).toEqual(['Rule', 'free', 'pro', 'gold', 'All plans']);
  await user.click(screen.getByRole('button', { name: 'Plan gold' }));
  await user.click(await screen.findByRole('menuitem', { name: 'Move left' }));
  expect(await screen.findByText(/Plan gold moved/)).toBeDefined();
  expect(requests.find(({ method }) => method === 'PATCH')?.body).toEqual({ position: 1.5 });

  await user.click(screen.getByRole('button', { name: 'Plan pro' }));
  await user.click(await screen.findByRole('menuitem', { name: 'Remove plan' }));
  const dialog = await screen.findByRole('dialog', { name: 'Remove the plan pro?' });
  expect(
    within(dialog).getByText(/^Also removes 3 rules and their overrides\. Checks that name this plan then fail/),
  ).toBeDefined();
  expect(within(dialog).getByRole('combobox', { name: 'Move its 12 users to' })).toHaveProperty('value', 'free');
  await user.click(within(dialog).getByRole('button', { name: 'Remove plan' }));
  expect(await screen.findByText(/Plan pro removed/)).toBeDefined();
  expect(usersTo).toBe('free');
});

test('the review says what the new limits would have done, and replays them for a longer time', async () => {
  const all = rule({ rule_id: '0', plan: null });
  const diff = {
    dry_run: true,
    text: '',
    changes: [
      { change: 'update', before: free, after: { ...free, burst_capacity: 9 } },
      { change: 'create', after: all },
      { change: 'remove', before: pro },
    ],
  };
  const figure = (value: number) => ({ value, error: 0 });
  const counts = { denied_then: figure(0), denied_now: figure(412), no_longer_denied: figure(3) };
  const ofFree = {
    rule_id: free.rule_id,
    rule: 'user:{user_id} [free]',
    mode: 'enforce' as const,
    note: null,
  };
  const ofAll = {
    rule_id: null,
    rule: 'user:{user_id}',
    mode: 'enforce' as const,
    note: 'No recorded check was on the plan pro.',
  };
  const requests = fakeServer({
    ...world(),
    'POST /api/v1/tenants/acme/matrix': diff,
    'POST /api/v1/tenants/acme/effect': effect({
      is_recording: true,
      since: '2026-11-20T06:00:00Z',
      until: '2026-11-20T07:30:00Z',
      checks: figure(1840),
      ...counts,
      newly_denied: figure(412),
      rules: [
        { ...ofFree, ...counts, newly_denied: figure(412) },
        { ...ofAll, ...counts, newly_denied: figure(0), no_longer_denied: figure(0) },
      ],
      left_out: [
        { rule_id: '7', rule: 'global', why: 'only some users were looked at' },
        { rule_id: '8', rule: 'ip:{ip}', why: 'only some users were looked at' },
      ],
    }),
    'GET /api/v1/tenants/acme/recording': () => problem(503, 'unavailable'),
  });
  const { user } = await edit('free', '8/s{Enter}');
  const dialog = await review(user);
  const shown = (await within(dialog).findByLabelText('Effect')).textContent;
  expect(shown).toMatch(/Of 1,840 checks recorded .*, this change would have denied 409 more\./);
  expect(shown).toMatch(/\. No recorded check was on the plan pro\. Not replayed: “[^”]+ · all plans”, “/);
  expect(shown).toMatch(/ · all plans”, because only some users were looked at; recorded denials stand\./);
  const items = await within(dialog).findAllByRole('listitem');
  expect(items[0]?.textContent).toMatch(/Of the recorded checks, 409 more denied/);
  expect(items[1]?.textContent).toMatch(/No recorded check was on the plan pro/);
  const asked = requests.find(({ path }) => path.endsWith('/effect'))?.body;
  expect(asked).toMatchObject({
    rules: [{ plan: 'free', burst_capacity: 9 }, { plan: null }],
    remove: [pro.rule_id],
  });
  await user.click(within(dialog).getByRole('button', { name: 'Replay all' }));
  expect(await screen.findByRole('dialog', { name: 'Replay recorded checks' })).toBeDefined();
});

test('the focus is in a row that was just added', async () => {
  fakeServer(world());
  const { user } = open('/t/acme/plans');
  await user.click(await screen.findByRole('button', { name: 'Add rule' }));
  const dialog = await screen.findByRole('dialog', { name: 'Add rule' });
  await user.click(within(dialog).getByRole('button', { name: 'Add rule' }));
  await user.keyboard('5/s{Enter}');
  expect(screen.getByText('1 change not saved')).toBeDefined();
});

test('a cell of a quota takes a number, and a new cell in its row is a quota too', async () => {
  const window = {
    algorithm: 'fixed_window',
    window: 'month',
    window_zone: 'Europe/Berlin',
    rate_per_second: 0,
  } as const;
  const quota = rule({ rule_id: '3', plan: 'pro', ...window, burst_capacity: 10_000 });
  const requests = fakeServer({
    ...world(),
    'GET /api/v1/tenants/acme/matrix': page([{ ...row, rules: [quota] }]),
    'POST /api/v1/tenants/acme/matrix': { dry_run: true, changes: [], text: '' },
  });
  const { user } = open('/t/acme/plans');
  expect((await cell('pro')).textContent).toMatch(/^10,000\/month/);
  (await cell('pro')).focus();
  await user.keyboard('{Enter}');
  expect(screen.queryByRole('textbox', { name: /Rate/ })).toBeNull();
  await user.clear(screen.getByRole('textbox', { name: /Burst/ }));
  await user.keyboard('20000{Enter}');
  (await cell('free')).focus();
  await user.keyboard('500{Enter}');
  expect((await cell('free')).textContent).toMatch(/^500\/month/);
  await user.click(await screen.findByRole('button', { name: 'Review changes' }));
  expect((await requested(requests, 'POST')).body).toEqual({
    dry_run: true,
    cells: [
      { rule_id: '3', version: 3, rate_unit: 'second', burst_capacity: 20_000 },
      {
        key_pattern: 'user:{user_id}',
        name: '',
        plan: 'free',
        rate_unit: 'second',
        burst_capacity: 500,
        algorithm: 'fixed_window',
        window: 'month',
        window_zone: 'Europe/Berlin',
      },
    ],
  });
});

afterEach(() => {
  vi.restoreAllMocks();
});

/** Gives elements a size, which jsdom does not. */
function layOut() {
  vi.spyOn(Element.prototype, 'clientWidth', 'get').mockReturnValue(1200);
  vi.spyOn(Element.prototype, 'clientHeight', 'get').mockReturnValue(700);
  vi.spyOn(HTMLElement.prototype, 'offsetHeight', 'get').mockReturnValue(52); // of rows
}

function large() {
  const names = Array.from({ length: 40 }, (_, i) => `plan-${String(i).padStart(2, '0')}`);
  const rows = Array.from({ length: 120 }, (_, i) => ({
    key_pattern: i % 2 ? `endpoint:/api/${i}` : `user:{user_id}:endpoint:/api/${i}`,
    name: '',
    scope: i % 2 ? ('endpoint' as const) : ('user' as const),
    rules: [rule({ rule_id: String(i + 1), plan: 'plan-00', rate_per_second: 10, burst_capacity: 20 })],
  }));
  return {
    ...world(),
    'GET /api/v1/tenants/acme/plans': page(names.map((name) => plan(name))),
    'GET /api/v1/tenants/acme/matrix': page(rows),
  };
}

test('of a large matrix only what is visible is drawn, and the keyboard reaches the rest', async () => {
  layOut();
  fakeServer(large());
  const { user } = open('/t/acme/plans');
  const grid = await screen.findByRole('grid', { name: 'Limits by plan' });
  expect(grid.getAttribute('aria-rowcount')).toBe('121');
  expect(grid.getAttribute('aria-colcount')).toBe('42');
  const cells = grid.querySelectorAll<HTMLElement>('[data-cell]');
  expect(cells.length).toBeGreaterThan(40);
  expect(cells.length).toBeLessThan(400);
  cells[0]?.focus();
  await user.keyboard('{End}{PageDown}{PageDown}{PageDown}{ArrowDown}');
  const cell = document.activeElement;
  expect(cell?.getAttribute('aria-colindex')).toBe('42');
  expect(cell?.parentElement?.getAttribute('aria-rowindex')).toBe('33');
});

test('rows are shown while more are read, and are multiplied once all are', async () => {
  const { items } = large()['GET /api/v1/tenants/acme/matrix'];
  const answers: ((answer: object) => void)[] = [];
  layOut();
  fakeServer({
    ...large(),
    'GET /api/v1/tenants/acme/matrix': ({ query }: { query: URLSearchParams }) =>
      query.get('cursor')
        ? new Promise((resolve) => answers.push(resolve))
        : { json: { items: items.slice(0, 20), next_cursor: 'more' } },
  });
  const { user } = open('/t/acme/plans');
  expect(await screen.findByText('20 rules so far')).toBeDefined();
  const multiply = screen.getByRole<HTMLButtonElement>('button', { name: 'Multiply limits' });
  expect(multiply.disabled).toBe(true);
  await user.type(screen.getByRole('textbox', { name: 'Search' }), 'api/119');
  expect(await screen.findByText('0 of 20 rules so far')).toBeDefined();
  expect(screen.queryByText('No rule matches')).toBeNull();
  await user.clear(screen.getByRole('textbox', { name: 'Search' }));

  answers.pop()?.({ status: 500, json: problem(500, 'internal').json });
  await user.click(await screen.findByRole('button', { name: 'Try again' }));
  await waitFor(() => expect(answers).toHaveLength(1));
  answers.pop()?.({ json: page(items.slice(20)) });
  expect(await screen.findByText('120 rules')).toBeDefined();
  expect(screen.queryByRole('button', { name: 'Try again' })).toBeNull();
  expect(multiply.disabled).toBe(false);
});

test('rows are filtered by words and scope, and what is shown changes together', async () => {
  layOut();
  fakeServer(large());
  const { user } = open('/t/acme/plans?q=api%2F11&scope=endpoint');
  expect(await screen.findByText('6 of 120 rules')).toBeDefined(); // 11, 111, 113 … 119
  await user.click(screen.getByRole('button', { name: 'Multiply these 6' }));
  const dialog = await screen.findByRole('dialog');
  await user.retype(within(dialog).getByLabelText('Times'), '0');
  expect(within(dialog).getByText('must be a number above 0, at most 1,000')).toBeDefined();
  await user.retype(within(dialog).getByLabelText('Times'), '1,5');
  await user.click(within(dialog).getByRole('button', { name: 'Change 6 limits' }));
  expect(await screen.findByText('6 changes not saved')).toBeDefined();
  const grid = screen.getByRole('grid', { name: 'Limits by plan' });
  expect(within(grid).getAllByText('15/s')).toHaveLength(6);
  expect(within(grid).getAllByText('burst 30')).toHaveLength(6);
});

test('a search that no rule matches says so', async () => {
  fakeServer(large());
  open('/t/acme/plans?q=nothing');
  expect(await screen.findByText('No rule matches')).toBeDefined();
});

test('a new rule without a limit is not left without a question', async () => {
  fakeServer(world());
  const { user, router } = open('/t/acme/plans');
  await user.click(await screen.findByRole('button', { name: 'Add rule' }));
  const dialog = await screen.findByRole('dialog', { name: 'Add rule' });
  await user.click(within(dialog).getByRole('button', { name: 'Add rule' }));
  expect(screen.getByRole('textbox', { name: /^Rate of/ }).getAttribute('placeholder')).toBe('e.g. 10/s');
  expect(screen.getByText('1 new rule without a limit. Type one into a cell')).toBeDefined();
  await user.click(screen.getByRole('link', { name: 'Users' }));
  const asked = await screen.findByRole('dialog', { name: 'Leave without saving?' });
  expect(asked.textContent).toMatch(/The new rule will be lost/);
  await user.click(within(asked).getByRole('button', { name: 'Stay' }));
  expect(router.state.location.pathname).toBe('/t/acme/plans');
});

test('what is typed into the dialog of a new rule is not left without a question', async () => {
  fakeServer(world());
  const { user, router } = open('/t/acme/plans');
  await user.click(await screen.findByRole('button', { name: 'Add rule' }));
  await user.type(within(await screen.findByRole('dialog')).getByLabelText('Name'), 'daily');
  void router.navigate({ to: '/t/$tenant/users', params: { tenant: 'acme' } });
  expect((await screen.findByRole('dialog', { name: 'Leave without saving?' })).textContent).toMatch(
    /What you typed will be lost/,
  );
  expect(router.state.location.pathname).toBe('/t/acme/plans');
});

test('a click edits a cell, and the menu of a plan multiplies all its limits', async () => {
  fakeServer(world());
  const { user } = open('/t/acme/plans');
  await user.click(await cell('pro'));
  expect(screen.getByRole('textbox', { name: /^Rate of/ })).toBeDefined();
  await user.keyboard('{Escape}');
  await user.click(screen.getByRole('button', { name: 'Plan pro' }));
  await user.click(await screen.findByRole('menuitem', { name: 'Copy or multiply limits' }));
  const dialog = await screen.findByRole('dialog', { name: 'Copy or multiply limits' });
  await user.click(within(dialog).getByRole('button', { name: 'Change 1 limit' }));
  await waitFor(async () => expect((await cell('pro')).textContent).toMatch(/100\/s.*burst 500/));
  expect((await cell('free')).textContent).toMatch(/^10\/s/);
});

test('a rule that ends by itself says when in its cell', async () => {
  const soon = new Date(Date.now() + 40 * 60_000).toISOString();
  fakeServer({
    ...world(),
    'GET /api/v1/tenants/acme/matrix': page([{ ...row, rules: [{ ...free, expires_at: soon }, pro] }]),
  });
  open('/t/acme/plans');
  expect((await cell('free')).textContent).toMatch(/ends in 40.min/);
});

test('Schedule stands beside the review, and opens the schedule', async () => {
  const diff = { dry_run: true, text: '', changes: [{ change: 'update', before: pro, after: pro }] };
  fakeServer({ ...world(), 'POST /api/v1/tenants/acme/matrix': diff });
  const { user } = open('/t/acme/plans?open=schedule');
  expect((await screen.findByRole('note')).textContent).toMatch(/then choose Schedule/);
  (await cell('pro')).focus();
  await user.keyboard('80/s{Enter}');
  await user.click(screen.getByRole('button', { name: 'Schedule' }));
  expect(await screen.findByRole('dialog', { name: 'Schedule this change' })).toBeDefined();
});

test('a multiplication says which rules it leaves alone', async () => {
  const rows = ['/a', '/b', '/c', '/d'].map((path) => ({
    key_pattern: `endpoint:${path}`,
    name: '',
    scope: 'endpoint',
    rules: [rule({ key_pattern: `endpoint:${path}`, plan: null })],
  }));
  fakeServer({ ...world(), 'GET /api/v1/tenants/acme/matrix': page([row, ...rows]) });
  const { user } = open('/t/acme/plans');
  await user.click(await screen.findByRole('button', { name: 'Plan pro' }));
  await user.click(await screen.findByRole('menuitem', { name: 'Copy or multiply limits' }));
  const dialog = await screen.findByRole('dialog', { name: 'Copy or multiply limits' });
  expect(within(dialog).getByRole('status').textContent).toBe(
    '4 of 5 rules stay as they are, because pro has no limit of its own there: Requests to /a, Requests ' +
      'to /b, Requests to /c and 1 more.',
  );
  expect(within(dialog).getByRole('button', { name: 'Change 1 limit' })).toBeDefined();
});

test('discarded edits come back', async () => {
  fakeServer(world());
  const { user } = await edit('pro', '80/s{Enter}');
  await user.click(screen.getByRole('button', { name: 'Discard edits' }));
  expect(screen.queryByText('1 change not saved')).toBeNull();
  await user.click(await screen.findByRole('button', { name: 'Undo' }));
  expect(screen.getByText('1 change not saved')).toBeDefined();
  expect((await cell('pro')).textContent).toMatch(/80\/s/);
});

test('what somebody else saved or made appears, and what is typed stays in its rule', async () => {
  const { queries, user } = later([row], [{ ...row, key_pattern: 'endpoint:/a', rules: [] }, row]);
  (await cell('pro')).focus();
  await user.keyboard('7');
  await queries.refetchQueries();
  await screen.findByText('endpoint:/a');
  expect(screen.getByRole('textbox', { name: /^Rate of Each user, pro/ })).toHaveProperty('value', '7');
  await user.keyboard('{Escape}');
  expect(document.activeElement?.closest('tr')?.textContent).toMatch(/Each user/);
});

test('what is typed into a rule that somebody removes is typed into no other', async () => {
  const other = { ...row, key_pattern: 'endpoint:/a', rules: [] };
  const { queries, user } = later([row, other], [other]);
  (await cell('pro')).focus();
  await user.keyboard('7');
  await queries.refetchQueries();
  await waitFor(() => expect(screen.queryByText('user:{user_id}')).toBeNull());
  expect(screen.queryByRole('textbox')).toBeNull();
});

function later(first: object[], second: object[]) {
  let reads = 0;
  fakeServer({
    ...world(),
    'GET /api/v1/tenants/acme/matrix': () => ({ json: page(reads++ === 0 ? first : second) }),
  });
  return open('/t/acme/plans');
}

test('the matrix is read again like the denials beside it', async () => {
  fakeServer(world());
  const { queries } = open('/t/acme/plans');
  await screen.findByRole('grid');
  const every = (part: string) => {
    const found = queries.getQueryCache().find({ queryKey: ['tenant', 'acme', part], exact: false });
    return found?.observers[0]?.options.refetchInterval;
  };
  expect(every('matrix')).toBe(every('stats'));
});

test('the review of a split says what becomes of overrides, and not that the default plan has no limit', async () => {
  const all = rule({ rule_id: '3', plan: null });
  const removal = { change: 'remove', before: all };
  fakeServer({
    ...world(),
    'GET /api/v1/tenants/acme/matrix': page([{ ...row, rules: [all] }]),
    'POST /api/v1/tenants/acme/matrix': {
      dry_run: true,
      text: '',
      changes: [
        { ...removal, overrides: { moved: 3, removed: 22, removed_users: ['42', '8841'] } },
        { change: 'create', after: free },
        { change: 'create', after: pro },
      ],
    },
  });
  const { user } = await edit('All plans', '{Delete}');
  const dialog = await review(user);
  const items = await within(dialog).findAllByRole('listitem');
  expect(items[0]?.textContent).toMatch(
    /3 overrides go to the new limit of the user’s plan, or to each new limit if the user has no assigned plan\./,
  );
  expect(within(items[0] as HTMLElement).getByRole('status').textContent).toMatch(
    /22 overrides are removed too: 42, 8841 and 20 more\./,
  );
  expect(within(dialog).getByRole('link', { name: 'Show overrides' }).getAttribute('href')).toBe(
    '/t/acme/overrides?rule=3',
  );
  expect(dialog.textContent).not.toMatch(/Users without/i);
});

test('while a review saves, nothing closes it, and a failure is shown in it', async () => {
  const diff = { dry_run: true, text: '', changes: [{ change: 'update', before: pro, after: pro }] };
  let refuse = () => {};
  const refused = new Promise<void>((resolve) => (refuse = resolve));
  fakeServer({
    ...world(),
    'POST /api/v1/tenants/acme/matrix': async ({ body }: { body: { dry_run: boolean } }) => {
      if (body.dry_run) return { json: diff };
      await refused;
      return problem(500, 'internal', { detail: 'The database does not answer.' });
    },
  });
  const { user } = await edit('pro', '80/s{Enter}');
  const dialog = await review(user);
  const save = within(dialog).getByRole('button', { name: 'Save' });
  await waitFor(() => expect(save).toHaveProperty('disabled', false));
  await user.click(save);
  await user.click(within(dialog).getByRole('button', { name: 'Back' }));
  await user.keyboard('{Escape}');
  expect(screen.getByRole('dialog')).toBe(dialog);
  refuse();
  expect(await within(dialog).findByText('The database does not answer.')).toBeDefined();
  expect((await cell('pro')).textContent).toMatch(/80\/s/);
});

test('while a plan is created, Cancel does nothing', async () => {
  let answer = () => {};
  const answered = new Promise<void>((resolve) => (answer = resolve));
  fakeServer({
    ...world(),
    'POST /api/v1/tenants/acme/plans': async () => {
      await answered;
      return problem(400, 'invalid-request', { errors: [{ pointer: '/name', detail: 'is taken' }] });
    },
  });
  const { user } = open('/t/acme/plans');
  await user.click(await screen.findByRole('button', { name: 'New plan' }));
  const dialog = await screen.findByRole('dialog');
  await user.type(within(dialog).getByLabelText('Name'), 'team{Enter}');
  await user.click(within(dialog).getByRole('button', { name: 'Cancel' }));
  answer();
  expect(await within(dialog).findByText('is taken')).toBeDefined();
});

test('a burst that was left to the rate does not depend on the unit that the rate is typed in', async () => {
  fakeServer({
    ...world(),
    'GET /api/v1/tenants/acme/matrix': page([{ ...row, rules: [rule({ ...free, burst_capacity: 10 })] }]),
  });
  const { user } = await edit('free', '600/min{Enter}');
  expect((await cell('free')).textContent).toMatch(/600\/min.*burst 10/);
  (await cell('pro')).focus();
  await user.keyboard('86400/day{Enter}');
  expect((await cell('pro')).textContent).toMatch(/86,400\/d.*burst 5/);
});

test('a rate that is raised does not lower the burst', async () => {
  const all = rule({ rule_id: '3', plan: null, rate_per_second: 0.1, rate_unit: 'minute', burst_capacity: 6 });
  fakeServer({ ...world(), 'GET /api/v1/tenants/acme/matrix': page([{ ...row, rules: [all] }]) });
  await edit('pro', '60/min{Enter}');
  expect((await cell('pro')).textContent).toMatch(/60\/min.*burst 6/);
});

test('cells that are typed above the limit for all plans keep the other fields of its rule', async () => {
  const all = rule({ rule_id: '3', plan: null, version: 2, failure_mode: 'closed', lease: 'never' });
  const requests = fakeServer({
    ...world(),
    'GET /api/v1/tenants/acme/matrix': page([{ ...row, rules: [all] }]),
    'POST /api/v1/tenants/acme/matrix': { dry_run: true, text: '', changes: [] },
  });
  const { user } = await edit('pro', '80/s{Enter}');
  (await cell('free')).focus();
  await user.keyboard('5/s{Enter}');
  await user.click(await screen.findByRole('button', { name: 'Review changes' }));
  await screen.findByRole('dialog');
  await waitFor(() =>
    expect(requests.some(({ path, method }) => method === 'POST' && path.endsWith('/matrix'))).toBe(true),
  );
  const sent = requests.findLast(({ path }) => path.endsWith('/matrix'))?.body as { cells: object[] };
  const kept = { failure_mode: 'closed', lease: 'never' };
  expect(sent.cells).toMatchObject([
    { plan: 'pro', rate_per_second: 80, ...kept },
    { plan: 'free', rate_per_second: 5, ...kept },
    { rule_id: '3', remove: true },
  ]);
});

test('a block that has ended is not in force, and the limits of plans show again', async () => {
  const over = new Date(Date.now() - 60_000).toISOString();
  const block = rule({ rule_id: '3', plan: null, action: 'block', expires_at: over });
  const all = rule({ rule_id: '4', plan: null, burst_capacity: 77 });
  const answer = { ...world(), 'GET /api/v1/tenants/acme/stats/top': top('rule', []) };
  fakeServer({ ...answer, 'GET /api/v1/tenants/acme/matrix': page([{ ...row, rules: [pro, block] }]) });
  open('/t/acme/plans');
  expect((await cell('All plans')).textContent).toBe('Expired');
  expect((await cell('free')).textContent).toBe('–');
  expect((await cell('pro')).textContent).toMatch(/^50\/s/);
  expect(screen.queryByText(/Always denied/)).toBeNull();
  cleanup();

  // The plan's own block is over, so the limit of all plans holds.
  const own = { ...block, plan: 'pro' };
  fakeServer({ ...answer, 'GET /api/v1/tenants/acme/matrix': page([{ ...row, rules: [own, all] }]) });
  open('/t/acme/plans');
  expect((await cell('pro')).textContent).toMatch(/Expired.*burst 77 · All plans/);
});

test('a rule ends on the screen by the clock of the server', async () => {
  const hour = 3_600_000;
  const { 'GET /api/v1/session': whoami } = world();
  const block = rule({
    rule_id: '3',
    plan: null,
    action: 'block',
    expires_at: new Date(Date.now() + hour).toISOString(),
  });
  fakeServer({
    ...world(),
    // The browser's clock is two hours late.
    'GET /api/v1/session': () => ({ json: whoami, headers: { Date: new Date(Date.now() + 2 * hour).toUTCString() } }),
    'GET /api/v1/tenants/acme/matrix': page([{ ...row, rules: [block] }]),
  });
  open('/t/acme/plans');
  expect((await cell('All plans')).textContent).toBe('Expired');
  noteServerTime(new Date().toUTCString(), Date.now(), Date.now());
});

test('a plan copies the limits of another, and keeps no identity of its rules', () => {
  const place = { key_pattern: row.key_pattern, name: row.name, plan: 'team' };
  const result = multiplied(new Map(), [{ ...row, scope: 'user' }], 'team', 2, 'pro');
  expect(result.changed).toBe(1);
  const edit = result.draft.get(cellId(place));
  expect(edit).toMatchObject({ place, base: null, like: pro });
  expect(edit?.limit).toMatchObject({ rate_per_second: 100, burst_capacity: 500 });
});
