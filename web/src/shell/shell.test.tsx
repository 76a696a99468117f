import { fireEvent, screen, waitFor, within } from '@testing-library/react';
import { expect, test, vi } from 'vitest';
import { limitExceeded } from '~/api/problem';
import { fakeServer, page, plan, problem, rule, session } from '../../test/fake';
import { open } from '../../test/render';
import { live, world } from '../../test/rules';
import { top } from '../../test/traffic';

test('somebody who is not signed in signs in, and comes to where they wanted to go', async () => {
  let signedIn = false;
  const requests = fakeServer({
    'GET /api/v1/session': () => (signedIn ? { json: session() } : problem(401, 'unauthorized')),
    'POST /api/v1/session': () => {
      signedIn = true;
      return { json: session() };
    },
  });
  const { user, router } = open('/t/acme/try?x=1');
  await user.type(await screen.findByLabelText('E-mail'), 'ada@example.com');
  await user.type(screen.getByLabelText('Password'), 'secret secret');
  await user.click(screen.getByRole('button', { name: 'Sign in' }));
  await waitFor(() => expect(router.state.location.pathname).toBe('/t/acme/try'));
  const sent = requests.find(({ method }) => method === 'POST');
  expect(sent?.body).toEqual({ email: 'ada@example.com', password: 'secret secret', tenant: 'acme' });
});

test('a wrong password says so and forgets what was typed', async () => {
  fakeServer({
    'GET /api/v1/session': () => problem(401, 'unauthorized'),
    'POST /api/v1/session': () => problem(401, 'unauthorized', { detail: 'There is no such account.' }),
  });
  const { user } = open('/sign-in');
  await user.type(await screen.findByLabelText('E-mail'), 'ada@example.com');
  await user.type(screen.getByLabelText('Password'), 'wrong');
  await user.click(screen.getByRole('button', { name: 'Sign in' }));
  expect((await screen.findByRole('alert')).textContent).toBe('There is no such account.');
  expect(screen.getByLabelText('Password')).toHaveProperty('value', '');
});

test('an address elsewhere is not where one comes to after signing in', async () => {
  fakeServer({
    'GET /api/v1/session': () => problem(401, 'unauthorized'),
    'POST /api/v1/session': session(),
  });
  const { user, router } = open('/sign-in?next=//evil.example/');
  await user.type(await screen.findByLabelText('E-mail'), 'ada@example.com');
  await user.type(screen.getByLabelText('Password'), 'secret secret');
  await user.click(screen.getByRole('button', { name: 'Sign in' }));
  await waitFor(() => expect(router.state.location.pathname).toBe('/t/acme/overview'));
});

const known =
  (ids: string[]) =>
  ({ query }: { query: URLSearchParams }) => ({
    json: {
      items: ids.filter((id) => id.startsWith(query.get('prefix') ?? '')).map((user_id) => ({ user_id, plan: null })),
    },
  });

test('the palette finds screens, rules and users', async () => {
  fakeServer({
    'GET /api/v1/session': session(),
    'GET /api/v1/tenants/acme/rules': page([rule({ key_pattern: 'endpoint:/api/search', scope: 'endpoint' })]),
    'GET /api/v1/tenants/acme/plans': page([plan('pro')]),
    'GET /api/v1/tenants/acme/stats/top': top('endpoint', []),
    'GET /api/v1/tenants/acme/known-users': known(['4200', 'api/search-bot']),
  });
  const { user, router } = open('/t/acme/try');
  await user.click(await screen.findByRole('button', { name: /Search Ctrl K/ }));
  const search = await screen.findByRole('combobox', { name: 'Search' });
  await user.type(search, 'api/search');
  expect(await screen.findByText('Requests to /api/search')).toBeDefined();
  await user.clear(search);
  await user.type(search, '42');
  await user.click(await screen.findByText('User 4200'));
  await waitFor(() => expect(router.state.location.pathname).toBe('/t/acme/users/4200'));
});

test('a word before says what is searched for, and an id that nobody knows is offered last', async () => {
  fakeServer({
    'GET /api/v1/session': session(),
    'GET /api/v1/tenants/acme/rules': page([rule({ key_pattern: 'user:{user_id}', name: 'pro limit' })]),
    'GET /api/v1/tenants/acme/plans': page([plan('pro')]),
    'GET /api/v1/tenants/acme/stats/top': top('endpoint', []),
    'GET /api/v1/tenants/acme/known-users': known(['4200', 'pro-1']),
  });
  const { user } = open('/t/acme/try');
  await user.click(await screen.findByRole('button', { name: /Search Ctrl K/ }));
  const search = await screen.findByRole('combobox', { name: 'Search' });
  const found = () =>
    screen
      .queryAllByRole('option')
      .map(({ textContent }) => textContent)
      .filter((text) => /^(User|Open user|Plan |Address|user:)/.test(text));
  const ask = async (text: string, want: string[]) => {
    await user.clear(search);
    await user.type(search, text);
    await waitFor(() => expect(found()).toEqual(want));
  };
  await ask('user 42', ['User 4200', 'Open user 42Not seen recently']);
  await ask('User 4200', ['User 4200']);
  await ask('007', ['Open user 007Not seen recently']);
  await ask('plan pro', ['Plan proRules of this plan']);
  await ask('ip 203.0.113.9', ['Address 203.0.113.9Violations, block or let through']);
  await ask('203.0.113.9', ['Address 203.0.113.9Violations, block or let through']);
  await ask('user 203.0.113.9', ['Open user 203.0.113.9Not seen recently']);
});

/** The users are known only once `late` is done. */
async function search(late: Promise<unknown> = Promise.resolve()) {
  fakeServer({
    ...world(),
    'GET /api/v1/tenants/acme/stats/top': top('endpoint', [{ value: '/v1/plans-preview', denied: 3 }]),
    'GET /api/v1/tenants/acme/known-users': async (asked: { query: URLSearchParams }) => {
      await late;
      return known(['acme-ci', 'rules-bot'])(asked);
    },
  });
  const opened = open('/t/acme/try');
  await screen.findByRole('button', { name: /Search Ctrl K/ });
  return opened;
}

const selectedOption = () =>
  within(screen.getByRole('listbox', { name: 'Results' })).getByRole('option', { selected: true }).textContent;

test('the first result is selected, and one that comes later does not move it', async () => {
  let known = () => {};
  const late = new Promise<void>((resolve) => (known = resolve));
  const { user, router } = await search(late);
  await user.keyboard('{Control>}k{/Control}');
  await user.type(await screen.findByRole('combobox', { name: 'Search' }), 'rules');
  expect(selectedOption()).toBe('Rules');
  await user.keyboard('{ArrowDown}');
  const second = selectedOption();
  known();
  await screen.findByRole('option', { name: 'User rules-bot' });
  expect(selectedOption()).toBe(second);
  await user.keyboard('{ArrowUp}{Enter}');
  await waitFor(() => expect(router.state.location.pathname).toBe('/t/acme/rules'));
});

test('Enter on the name of a page opens the page, and on what is not found yet, the result that comes', async () => {
  const { user, router } = await search();
  await user.keyboard('{Control>}k{/Control}');
  await user.type(await screen.findByRole('combobox', { name: 'Search' }), 'profile{Enter}');
  await waitFor(() => expect(router.state.location.pathname).toBe('/profile'));
  await router.navigate({ to: '/t/$tenant/try', params: { tenant: 'acme' } });
  await user.keyboard('{Control>}k{/Control}');
  await user.type(await screen.findByRole('combobox', { name: 'Search' }), 'acme-ci{Enter}');
  await waitFor(() => expect(router.state.location.pathname).toBe('/t/acme/users/acme-ci'));
});

test('the palette ranks by fit, finds endpoints and actions, and keeps what is typed early', async () => {
  const { user } = await search();
  await user.keyboard('{Control>}k{/Control}');
  // The box does not have the focus yet.
  fireEvent.keyDown(document.body, { key: 'p' });
  const box = await screen.findByRole('combobox', { name: 'Search' });
  await waitFor(() => expect(box).toHaveProperty('value', 'p'));
  await user.type(box, 'lans');
  expect(selectedOption()).toBe('Plans');
  expect(await screen.findByRole('option', { name: /\/v1\/plans-preview/ })).toBeDefined();
  await user.clear(box);
  await user.type(box, 'block');
  expect(selectedOption()).toMatch(/^Block an address or network/);
});

test('the navigation says where one is', async () => {
  fakeServer({ 'GET /api/v1/session': session() });
  open('/t/acme/try');
  const screens = await screen.findByRole('navigation', { name: 'Screens' });
  const current = await within(screens).findByRole('link', { current: 'page' });
  expect(current.textContent).toBe('Try it');
});

test('a server that is away is said, and its return is noticed', async () => {
  fakeServer({ 'GET /api/v1/session': session() });
  const { user, queries } = open('/t/acme/try');
  await screen.findByRole('heading', { name: 'Try it' });
  const answering = globalThis.fetch;
  vi.stubGlobal('fetch', () => Promise.reject(new TypeError('failed to fetch')));
  await queries.invalidateQueries();
  expect(await screen.findByText(/Cannot reach the server/)).toBeDefined();
  expect(screen.getByRole('heading', { name: 'Try it' })).toBeDefined();
  vi.stubGlobal('fetch', answering);
  await waitFor(() => expect(screen.queryByText(/Cannot reach the server/)).toBeNull());
  await user.keyboard('{Escape}');
});

test('a denial says how long it lasts, and the query continues by itself', async () => {
  let asked = 0;
  fakeServer({
    'GET /api/v1/session': session(),
    'GET /api/v1/tenants/acme/members': () =>
      asked++ === 0
        ? {
            ...problem(429, limitExceeded, { detail: 'You have used the server; nothing was done.' }),
            headers: { 'Retry-After': '3' },
          }
        : page([]),
    'GET /api/v1/tenants/acme/invitations': page([]),
  });
  open('/t/acme/settings/members');
  expect(await screen.findByText(/This page continues in \d s/)).toBeDefined();
  expect(await screen.findByRole('button', { name: 'Invite' })).toBeDefined();
  await waitFor(() => expect(asked).toBe(2), { timeout: 30_000 });
  await waitFor(() => expect(screen.queryByText(/This page continues/)).toBeNull(), { timeout: 30_000 });
});

test('a session that ended elsewhere leads to signing in', async () => {
  let ended = false;
  fakeServer({ 'GET /api/v1/session': () => (ended ? problem(401, 'unauthorized') : { json: session() }) });
  const { router, queries } = open('/t/acme/try');
  await screen.findByRole('heading', { name: 'Try it' });
  ended = true;
  await queries.invalidateQueries();
  await waitFor(() => expect(router.state.location.pathname).toBe('/sign-in/acme'));
  expect(router.state.location.search).toEqual({ next: '/t/acme/try' });
});

test('what is pressed just when the session ends leads to signing in, not to an error', async () => {
  const complaints = vi.spyOn(console, 'error');
  let ended = false;
  fakeServer({
    'GET /api/v1/session': () => (ended ? problem(401, 'unauthorized') : { json: session() }),
    'GET /api/v1/tenants/acme/members': page([]),
    'GET /api/v1/tenants/acme/invitations': page([]),
  });
  const { router, queries } = open('/t/acme/settings/members');
  const invite = await screen.findByRole('button', { name: 'Invite' });
  ended = true;
  queries.setQueryData(['session'], null); // the shell hears of it a moment later
  fireEvent.click(invite);
  await waitFor(() => expect(router.state.location.pathname).toBe('/sign-in/acme'));
  expect(complaints).not.toHaveBeenCalled();
});

test('who signs in from another tab does not see what was read for the one before', async () => {
  let now = session();
  fakeServer({ 'GET /api/v1/session': () => ({ json: now }) });
  const { queries } = open('/t/acme/try');
  await screen.findByRole('heading', { name: 'Try it' });
  queries.setQueryData(['tenant', 'acme', 'of before'], 'a secret');
  await queries.invalidateQueries({ queryKey: ['session'] });
  expect(queries.getQueryData(['tenant', 'acme', 'of before'])).toBe('a secret'); // it is the same person
  now = { ...now, account: { ...now.account, account_id: now.account.account_id + 1 } };
  await queries.invalidateQueries({ queryKey: ['session'] });
  await waitFor(() => expect(queries.getQueryData(['tenant', 'acme', 'of before'])).toBeUndefined());
});

test('the palette takes an address to its violations, from where it is blocked', async () => {
  fakeServer({
    'GET /api/v1/session': session(),
    'GET /api/v1/tenants/acme/rules': page([rule()]),
    'GET /api/v1/tenants/acme/plans': page([]),
    'GET /api/v1/tenants/acme/stats/top': top('endpoint', []),
    'GET /api/v1/tenants/acme/known-users': known([]),
  });
  const { user } = open('/t/acme/try');
  await user.click(await screen.findByRole('button', { name: /Search Ctrl K/ }));
  const search = await screen.findByRole('combobox', { name: 'Search' });
  await user.type(search, '203.0.113.9');
  const [first] = await screen.findAllByText('Address 203.0.113.9');
  expect(first).toBeDefined();
  await user.clear(search);
  await user.type(search, '42');
  expect(screen.queryByText(/^Address/)).toBeNull();
});

test('the palette schedules a change of a rule', async () => {
  fakeServer({
    'GET /api/v1/session': session(),
    'GET /api/v1/tenants/acme/rules': page([rule()]),
    'GET /api/v1/tenants/acme/users': page([]),
    'GET /api/v1/tenants/acme/plans': page([]),
    'GET /api/v1/tenants/acme/matrix': page([]),
    'GET /api/v1/tenants/acme/stats/top': top('rule', []),
  });
  const { user, router } = open('/t/acme/try');
  await user.click(await screen.findByRole('button', { name: /Search Ctrl K/ }));
  await user.type(await screen.findByRole('combobox', { name: 'Search' }), 'schedule plans');
  await user.click(await screen.findByText('Schedule a change of plans'));
  await waitFor(() => expect(router.state.location.pathname).toBe('/t/acme/plans'));
  expect(router.state.location.search).toEqual({ open: 'schedule' });
});

test('the header of a phone says in which tenant one is', async () => {
  fakeServer({ 'GET /api/v1/session': session() });
  open('/t/acme/try');
  const [header] = await screen.findAllByRole('banner');
  expect(header?.textContent).toMatch(/Sluice.*Tenant: Acme/);
});

test('signing out with unsaved edits asks first', async () => {
  const requests = fakeServer({
    ...world(),
    'DELETE /api/v1/session': () => ({ status: 204 }),
  });
  const { user } = open('/t/acme/rules/1');
  await user.type(await screen.findByLabelText('Description'), 'x');
  await user.click(screen.getByRole('button', { name: /^Account/ }));
  await user.click(await screen.findByRole('menuitem', { name: 'Sign out' }));
  await user.click(await screen.findByRole('button', { name: 'Stay' }));
  expect(requests.some(({ method }) => method === 'DELETE')).toBe(false);
  expect(screen.getByLabelText('Description')).toHaveProperty('value', `${live.description}x`);
});
