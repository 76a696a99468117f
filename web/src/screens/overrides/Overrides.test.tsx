import { screen, waitFor, within } from '@testing-library/react';
import { expect, test } from 'vitest';
import type { Override } from '~/api/types';
import { fakeServer, page, problem, rule, session } from '../../../test/fake';
import { open } from '../../../test/render';
import { override as given, user as someUser, violation } from '../../../test/traffic';

const acme = '/api/v1/tenants/acme';

const override = (user_id: string, more: Partial<Override> = {}) => given({ user_id, expires_at: null, ...more });

function server(items: Override[], more: Record<string, unknown> = {}) {
  const asked: URLSearchParams[] = [];
  fakeServer({
    'GET /api/v1/session': session(),
    [`GET ${acme}/rules`]: page([rule()]),
    [`GET ${acme}/overrides`]: ({ query }: { query: URLSearchParams }) => {
      asked.push(query);
      const first = query.get('cursor') === null;
      return {
        json: { items: first ? items : [override('99')], next_cursor: first && items.length ? 'next' : null },
      };
    },
    [`GET ${acme}/users/42`]: () => problem(404, 'not-found'),
    [`GET ${acme}/users/42/buckets`]: { items: [], has_more: false },
    ...more,
  });
  return asked;
}

test('the overrides of all rules are listed, page by page, and a row opens its user', async () => {
  const asked = server([override('42')]);
  const { user, router } = open('/t/acme/overrides');
  const table = await screen.findByRole('table', { name: 'Overrides' });
  expect(within(table).getAllByRole('row')[1]?.textContent).toMatch(
    /42Each user pro100 per second.*migration weekNever/,
  );
  await user.click(screen.getByRole('button', { name: 'Show more' }));
  expect(await within(table).findByText('99')).toBeDefined();
  expect(asked.at(-1)?.get('cursor')).toBe('next');
  await user.click(within(table).getByRole('link', { name: '42' }));
  await waitFor(() => expect(router.state.location.pathname).toBe('/t/acme/users/42'));
});

test('an override that ends while it is listed is expired', async () => {
  server([override('42', { expires_at: new Date(Date.now() - 60_000).toISOString(), expired: false })]);
  open('/t/acme/overrides');
  const table = await screen.findByRole('table', { name: 'Overrides' });
  expect(within(table).getAllByRole('row')[1]?.textContent).toMatch(/Expired/);
});

test('the filters are in the address, and asked of the server', async () => {
  const asked = server([override('42', { expires_at: '2026-11-25T00:00:00Z' })]);
  const { user, router } = open('/t/acme/overrides?prefix=4&rule=12');
  await screen.findByRole('table', { name: 'Overrides' });
  expect(Object.fromEntries(asked[0] ?? [])).toEqual({ rule_id: '12', prefix: '4', limit: '100' });
  await user.selectOptions(screen.getByLabelText('Ends'), 'Ending within 7 days');
  await waitFor(() => expect(router.state.location.searchStr).toBe('?prefix=4&rule=12&ends=soon'));
  await waitFor(() => expect(asked.at(-1)?.get('sort')).toBe('end'));
  expect(asked.at(-1)?.get('expired')).toBe('false');
  const until = Date.parse(asked.at(-1)?.get('ends_before') ?? '') - Date.now();
  expect(Math.round(until / 3_600_000)).toBe(7 * 24);
});

test.each([
  ['', 'No overrides yet'],
  ['?ends=soon', 'No override ends within 7 days'],
  ['?ends=expired', 'No expired overrides'],
  ['?prefix=zzz', 'No results'],
])('an empty list says what would be in it: %s', async (query, title) => {
  server([]);
  open(`/t/acme/overrides${query}`);
  expect(await screen.findByRole('heading', { name: title })).toBeDefined();
});

test('rules that end by themselves are listed above the overrides', async () => {
  const temporary = { key_pattern: 'user:42', name: 'temporary', plan: null, action: 'block' } as const;
  const expires_at = new Date(Date.now() + 600_000).toISOString();
  server([], { [`GET ${acme}/rules`]: page([rule(), rule({ rule_id: '13', ...temporary, expires_at })]) });
  open('/t/acme/overrides');
  const list = await screen.findByRole('list', { name: 'Temporary rules' });
  expect(list.textContent).toMatch(/User 42.*Blocks until/);
});

async function begin() {
  const { user } = open('/t/acme/overrides');
  await user.click((await screen.findAllByRole('button', { name: 'New override' }))[0] as HTMLElement);
  return { user, dialog: await screen.findByRole('dialog', { name: 'New override' }) };
}

test('a new override begins with the rule that denied the user who is typed, and keeps the user', async () => {
  const json = someUser({ user_id: '7', recent_violations: [violation({ rule_id: '13' })] });
  server([], {
    [`GET ${acme}/rules`]: page([rule(), rule({ rule_id: '13', plan: 'free' })]),
    [`GET ${acme}/users/7`]: () => ({ json, headers: { ETag: '"0"' } }),
  });
  const { user, dialog } = await begin();
  expect(within(dialog).getByLabelText('Rule')).toHaveProperty('value', '12');
  await user.type(within(dialog).getByLabelText(/^User/), '7');
  await waitFor(() => expect(within(dialog).getByLabelText('Rule')).toHaveProperty('value', '13'));
  expect(within(dialog).getByText('The rule that denies this user most')).toBeDefined();
  expect(within(dialog).getByLabelText(/^User/)).toHaveProperty('value', '7');
});

test('the rules that apply to the user who is typed come first, and the first of them is chosen', async () => {
  server([], {
    [`GET ${acme}/rules`]: page([rule(), rule({ rule_id: '13', plan: 'free' })]),
    [`GET ${acme}/users/7`]: () => ({ json: someUser({ user_id: '7' }), headers: { ETag: '"0"' } }),
  });
  const { user, dialog } = await begin();
  await user.type(within(dialog).getByLabelText(/^User/), '7');
  await waitFor(() => expect(within(dialog).getByLabelText('Rule')).toHaveProperty('value', '13'));
  const plans = within(dialog).getAllByRole('group', { name: /plan/i });
  expect(plans.map((plan) => [plan.getAttribute('label'), plan.textContent])).toEqual([
    ['Plan free', 'Each user · free'],
    ['Other plans', 'Each user · pro'],
  ]);
});

test('an override that was begun keeps its rule and what was typed; the rule that denies is offered', async () => {
  const json = someUser({ user_id: '7', recent_violations: [violation({ rule_id: '13' })] });
  let answer: ((reply: unknown) => void) | undefined;
  server([], {
    [`GET ${acme}/rules`]: page([rule(), rule({ rule_id: '13', plan: 'free' })]),
    [`GET ${acme}/users/7`]: () => new Promise((resolve) => (answer = resolve)),
    [`GET ${acme}/users/70`]: () => ({ json: someUser({ user_id: '70' }), headers: { ETag: '"0"' } }),
  });
  const { user, dialog } = await begin();
  const chosen = () => (within(dialog).getByLabelText('Rule') as HTMLSelectElement).value;
  await user.type(within(dialog).getByLabelText(/^User/), '7');
  const reason = within(dialog).getByLabelText(/^Reason/);
  await user.type(reason, 'ticket');
  await waitFor(() => expect(answer).toBeDefined());
  answer?.({ json, headers: { ETag: '"0"' } });
  const offer = await within(dialog).findByRole('button', { name: 'Use this rule' });
  expect(offer.closest('p')?.textContent).toMatch(/^Each user · free denies this user most\./);
  expect(chosen()).toBe('12');
  expect(reason).toHaveProperty('value', 'ticket');
  expect(document.activeElement).toBe(reason);
  await user.type(within(dialog).getByLabelText(/^User/), '0');
  expect(reason.isConnected).toBe(true);
  await user.type(within(dialog).getByLabelText(/^User/), '{Backspace}');
  await user.click(await within(dialog).findByRole('button', { name: 'Use this rule' }));
  expect(chosen()).toBe('13');
});

test('the rule that was suggested stays when another user is typed after the reason', async () => {
  const of7 = someUser({ user_id: '7', recent_violations: [violation({ rule_id: '13' })] });
  server([], {
    [`GET ${acme}/rules`]: page([rule(), rule({ rule_id: '13', plan: 'free' })]),
    [`GET ${acme}/users/7`]: () => ({ json: of7, headers: { ETag: '"0"' } }),
    [`GET ${acme}/users/70`]: () => ({ json: someUser({ user_id: '70' }), headers: { ETag: '"0"' } }),
  });
  const { user, dialog } = await begin();
  await user.type(within(dialog).getByLabelText(/^User/), '7');
  await waitFor(() => expect(within(dialog).getByLabelText('Rule')).toHaveProperty('value', '13'));
  await user.type(within(dialog).getByLabelText(/^Reason/), 'ticket');
  await user.type(within(dialog).getByLabelText(/^User/), '0');
  expect(within(dialog).getByLabelText('Rule')).toHaveProperty('value', '13');
  expect(within(dialog).getByLabelText(/^Reason/)).toHaveProperty('value', 'ticket');
});
