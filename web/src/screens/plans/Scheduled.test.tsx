import { fireEvent, screen, waitFor, within } from '@testing-library/react';
import { expect, test } from 'vitest';
import { auditEntry, effect, fakeServer, page, plan, rule, session } from '../../../test/fake';
import { open } from '../../../test/render';
import { scheduledChange, top } from '../../../test/traffic';

const search = rule({ rule_id: '1', key_pattern: 'endpoint:/search', plan: 'pro', version: 4 });
const upload = rule({ rule_id: '2', key_pattern: 'endpoint:/upload', plan: 'pro', version: 5 });
const rows = [search, upload].map((one) => ({
  key_pattern: one.key_pattern,
  name: '',
  scope: 'endpoint',
  rules: [one],
}));
const path = '/api/v1/tenants/acme/scheduled-changes';

const world = (more: object) => ({
  'GET /api/v1/session': session('editor'),
  'GET /api/v1/tenants/acme/plans': page([plan('pro')]),
  'GET /api/v1/tenants/acme/matrix': page(rows),
  'GET /api/v1/tenants/acme/stats/top': top('rule', []),
  'POST /api/v1/tenants/acme/effect': effect({}),
  'POST /api/v1/tenants/acme/matrix': {
    dry_run: true,
    text: '',
    changes: [search, upload].map((one) => ({
      change: 'update',
      before: one,
      after: { ...one, burst_capacity: 90 },
    })),
  },
  ...more,
});

const change = scheduledChange({
  title: '2 limits of pro',
  rules: [
    { rule_id: '1', change: { burst_capacity: 90 }, failure: null },
    { rule_id: '9', change: { burst_capacity: 90 }, failure: 'The rule was removed before.' },
  ],
  starts_at: '2126-11-23T09:00:00Z',
  ends_at: '2126-11-27T17:00:00Z',
  state: 'in_force',
  applied_at: '2126-11-23T09:00:00Z',
  failure: '1 of 2 rules was not changed.',
});

async function typeColumn(user: ReturnType<typeof open>['user'], ...limits: string[]) {
  const grid = await screen.findByRole('grid', { name: 'Limits by plan' });
  within(grid).getAllByRole('cell')[0]?.focus();
  for (const limit of limits) await user.keyboard(`${limit}{Enter}`);
}

test('a column is scheduled as one from the review', async () => {
  const requests = fakeServer(world({ [`POST ${path}`]: () => ({ status: 201, json: change }) }));
  const { user } = open('/t/acme/plans');
  await typeColumn(user, '80/s', '90/s');
  await user.click(screen.getByRole('button', { name: 'Review changes' }));
  const review = await screen.findByRole('dialog');
  await waitFor(() =>
    expect(within(review).getByRole('button', { name: 'Schedule' })).toHaveProperty('disabled', false),
  );
  await user.click(within(review).getByRole('button', { name: 'Schedule' }));
  const dialog = await screen.findByRole('dialog', { name: 'Schedule 2 changes' });
  fireEvent.change(within(dialog).getByLabelText(/Starts/), { target: { value: '2126-11-23T09:00' } });
  await user.click(within(dialog).getByRole('checkbox', { name: 'Take them back' }));
  fireEvent.change(within(dialog).getByLabelText(/Ends/), { target: { value: '2126-11-27T17:00' } });
  await user.click(within(dialog).getByRole('button', { name: 'Schedule' }));
  await waitFor(() => expect(screen.queryByText(/not saved/)).toBeNull());
  expect(requests.find((sent) => sent.method === 'POST' && sent.path === path)?.body).toEqual({
    rules: [
      { rule_id: '1', version: 4, change: { rate_per_second: 80, rate_unit: 'second', burst_capacity: 50 } },
      { rule_id: '2', version: 5, change: { rate_per_second: 90, rate_unit: 'second', burst_capacity: 50 } },
    ],
    starts_at: new Date('2126-11-23T09:00').toISOString(),
    ends_at: new Date('2126-11-27T17:00').toISOString(),
  });
});

test('a removal cannot be scheduled, and Schedule says why', async () => {
  fakeServer(world({}));
  const { user } = open('/t/acme/plans');
  await typeColumn(user, '80/s');
  await user.keyboard('{Delete}');
  const why = 'A change that adds or removes a rule cannot be scheduled.';
  await user.click(screen.getByRole('button', { name: 'Review changes' }));
  const review = await screen.findByRole('dialog');
  const schedule = within(review).getByRole('button', { name: 'Schedule' });
  await waitFor(() => expect(schedule).toHaveProperty('disabled', false));
  expect(screen.queryByText(why)).toBeNull();
  await user.click(schedule);
  expect(within(review).getByText(why)).toBeDefined();
  expect(screen.queryByRole('dialog', { name: /^Schedule/ })).toBeNull();
});

test.each([
  [
    'waiting',
    new RegExp(
      String.raw`A change of this rule is scheduled, \w+ 23 Nov 2126.*to \w+ 27 Nov 2126.*bursts to 90\. It is made ` +
        String.raw`all the same, and at its end this limit is back\.`,
    ),
  ],
  ['in_force', /A scheduled change of this rule is in force.*its end takes nothing back\./],
])('the review of an edit says that a change of the rule is %s', async (state, words) => {
  fakeServer(world({ [`GET ${path}`]: page([{ ...change, state }]) }));
  const { user } = open('/t/acme/plans');
  await screen.findByRole('list', { name: 'Scheduled changes' });
  await typeColumn(user, '80/s', '90/s');
  await user.click(screen.getByRole('button', { name: 'Review changes' }));
  const review = await screen.findByRole('dialog');
  expect((await within(review).findByText(words)).closest('li')?.textContent).toMatch(/\/search/);
  expect(within(review).getAllByText(/of this rule is/)).toHaveLength(1);
});

const removal = auditEntry({
  action: 'remove',
  object: { kind: 'rule', id: '9' },
  before: { ...rule({ rule_id: '9', key_pattern: 'user:{user_id}', name: 'spring', plan: null }) },
  after: null,
});

test('the list has a change of many rules as one entry, and it is ended as one', async () => {
  const requests = fakeServer(
    world({
      [`GET ${path}`]: page([change]),
      [`POST ${path}/7/cancel`]: { ...change, state: 'done' },
      'GET /api/v1/tenants/acme/audit': page([removal]),
    }),
  );
  const { user } = open('/t/acme/plans');
  const list = await screen.findByRole('list', { name: 'Scheduled changes' });
  expect(list.textContent).toMatch(/In force2 limits of pro.*by ada@example.com1 of 2 rules was not changed/);
  await user.click(within(list).getByText('Show 2 rules'));
  await within(list).findByText('Removed');
  expect(list.textContent).toMatch(
    /Requests to \/search.*bursts to 90Each user spring · all plans RemovedThe rule was removed before/,
  );
  await user.click(within(list).getByRole('button', { name: 'End now' }));
  const dialog = await screen.findByRole('dialog');
  expect(dialog.textContent).toMatch(/these 2 rules return to the limit before/);
  await user.click(within(dialog).getByRole('button', { name: 'End now' }));
  await waitFor(() => expect(requests.some((sent) => sent.path === `${path}/7/cancel`)).toBe(true));
});

test('names of removed rules are looked up once the matrix is there and the rules are shown', async () => {
  let answer: ((reply: { json: unknown }) => void) | undefined;
  const requests = fakeServer(
    world({
      'GET /api/v1/tenants/acme/matrix': () => new Promise((resolve) => (answer = resolve)),
      [`GET ${path}`]: page([{ ...change, change_id: '8', rules: [change.rules[0]] }, change]),
      'GET /api/v1/tenants/acme/audit': page([removal]),
    }),
  );
  const asked = () => requests.filter((sent) => sent.path.endsWith('/audit')).length;
  const { user, queries } = open('/t/acme/plans');
  await waitFor(() => expect(requests.some((sent) => sent.path === path)).toBe(true));
  await waitFor(() => expect(answer).toBeDefined());
  await waitFor(() =>
    expect(queries.isFetching({ predicate: ({ queryKey }) => queryKey.includes('scheduled') })).toBe(0),
  );
  expect(screen.queryByText(/removed/i)).toBeNull();
  answer?.({ json: page(rows) });
  const list = await screen.findByRole('list', { name: 'Scheduled changes' });
  expect(list.textContent).toMatch(/Requests to \/search/);
  await waitFor(() => expect(queries.isFetching()).toBe(0));
  expect(asked()).toBe(0);
  await user.click(within(list).getByText('Show 2 rules'));
  expect(await within(list).findByText('Removed')).toBeDefined();
  expect(asked()).toBe(1);
});
