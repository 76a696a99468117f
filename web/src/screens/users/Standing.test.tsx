import { screen, waitFor, within } from '@testing-library/react';
import { afterEach, expect, test, vi } from 'vitest';
import { page, rule } from '../../../test/fake';
import { open } from '../../../test/render';
import { bucket, override, user as someUser, violation } from '../../../test/traffic';
import { base, its, tag, userServer } from '../../../test/users';

afterEach(() => {
  vi.useRealTimers();
});

const inAnHour = () => new Date(Date.now() + 3_600_000).toISOString();
const named = { rule_id: '21', key_pattern: 'user:42', name: 'temporary', plan: null } as const;

const standing = async () =>
  (await screen.findByRole('heading', { name: 'At present' })).closest('section') as HTMLElement;

test('a block of this user is shown with its end and its rule, and can be ended', async () => {
  let block = rule({ ...named, action: 'block', expires_at: inAnHour() });
  const others = [
    rule({ rule_id: '22', key_pattern: 'user:4', action: 'block' }),
    rule({
      rule_id: '23',
      key_pattern: 'user:42',
      name: 'ended',
      action: 'bypass',
      expires_at: '2026-01-01T00:00:00Z',
    }),
  ];
  const requests = userServer({
    [`GET ${base}/rules`]: () => ({ json: page([rule(), block, ...others]) }),
    [`GET ${its}`]: () => ({ json: someUser({ recent_violations: [] }), headers: tag }),
    [`PATCH ${base}/rules/21`]: () => {
      block = { ...block, expires_at: new Date().toISOString() };
      return { json: block };
    },
  });
  const { user } = open('/t/acme/users/42');
  const card = await standing();
  expect(card.textContent).toMatch(/Blockeduntil .* by rule User 42 temporary/);
  expect(card.textContent).not.toMatch(/user:4 |ended/);
  await user.click(within(card).getByRole('button', { name: 'End now' }));
  await waitFor(() => expect(screen.queryByRole('heading', { name: 'At present' })).toBeNull());
  expect(requests.filter(({ method }) => method === 'PATCH').map(({ body }) => body)).toEqual([
    { expires_in_seconds: 0 },
  ]);
});

test('a rule of an endpoint is said to concern some checks; one without end has no button', async () => {
  const pattern = 'user:42:endpoint:/api/search';
  userServer({
    [`GET ${base}/rules`]: page([rule({ ...named, key_pattern: pattern, action: 'bypass', expires_at: null })]),
  });
  open('/t/acme/users/42');
  const card = await standing();
  expect(card.textContent).toMatch(/Let throughSome checks, without end by rule User 42 on \/api\/search/);
  expect(within(card).queryByRole('button', { name: 'End now' })).toBeNull();
});

test('a block of the address from which the user was denied is shown, and can be ended', async () => {
  const pattern = { key_pattern: 'ip:203.0.113.9', name: 'temporary', plan: null };
  userServer({
    [`GET ${base}/rules`]: page([rule({ rule_id: '21', ...pattern, action: 'block', expires_at: inAnHour() })]),
  });
  open('/t/acme/users/42');
  const card = await standing();
  await within(card).findByText(/^Address 203\.0\.113\.9, from which/);
  expect(card.textContent).toMatch(/BlockedAddress 203\.0\.113\.9.* until .* by rule Address 203\.0\.113\.9 temporary/);
  expect(within(card).getByRole('button', { name: 'End now' })).toBeDefined();
});

test('a limit of a user is raised from the menu too', async () => {
  userServer();
  const { user } = open('/t/acme/users/42');
  await user.click(await screen.findByRole('button', { name: 'Block or let through' }));
  await user.click(await screen.findByRole('menuitem', { name: 'Raise a limit …' }));
  expect(await screen.findByRole('dialog', { name: 'New override for user 42' })).toBeDefined();
});

test('the last denial is explained at once, and its rule can be raised', async () => {
  userServer();
  const { user, router } = open('/t/acme/users/42');
  const card = await standing();
  expect(card.textContent).toMatch(/Last denial.*User 42 on free was denied/);
  await user.click(within(card).getByRole('button', { name: 'Raise this limit' }));
  expect(router.state.location.search).toMatchObject({ override: String(violation().rule_id) });
});

test('a user is let through from the page, for an hour', async () => {
  const requests = userServer({
    [`POST ${base}/rules`]: () => ({ status: 201, json: rule({ ...named, expires_at: inAnHour() }) }),
  });
  const { user } = open('/t/acme/users/42');
  await user.click(await screen.findByRole('button', { name: 'Block or let through' }));
  await user.click(await screen.findByRole('menuitem', { name: /^Let through/ }));
  const dialog = await screen.findByRole('dialog', { name: 'Let through user 42' });
  await user.click(within(dialog).getByRole('button', { name: 'Let through for 1 hour' }));
  await waitFor(() => expect(screen.queryByRole('dialog')).toBeNull());
  expect(requests.find(({ method, path }) => method === 'POST' && path === `${base}/rules`)?.body).toMatchObject({
    key_pattern: 'user:42',
    action: 'bypass',
  });
});

test('blocking a user who is let through says that it has no effect, and offers to end that', async () => {
  let bypass = rule({ rule_id: '22', key_pattern: 'user:42', name: 'partner', plan: null, action: 'bypass' });
  const requests = userServer({
    [`GET ${base}/rules`]: () => ({ json: page([bypass]) }),
    [`PATCH ${base}/rules/22`]: () => {
      bypass = { ...bypass, expires_at: new Date().toISOString() };
      return { json: bypass };
    },
  });
  const { user } = open('/t/acme/users/42');
  await user.click(await screen.findByRole('button', { name: 'Block or let through' }));
  await user.click(await screen.findByRole('menuitem', { name: /^Block/ }));
  const dialog = await screen.findByRole('dialog', { name: 'Block user 42' });
  expect(dialog.textContent).toMatch(/No effect now: these rules let every check of this user through/);
  expect(dialog.textContent).not.toMatch(/is denied/);
  await user.click(within(dialog).getByRole('button', { name: 'End now' }));
  await waitFor(() => expect(dialog.textContent).toMatch(/Every check of this user is denied\./));
  expect(dialog.textContent).not.toMatch(/let through/);
  expect(requests.find(({ method }) => method === 'PATCH')?.body).toEqual({ expires_in_seconds: 0 });
  expect(screen.getByRole('dialog', { name: 'Block user 42' })).toBe(dialog);
});

test('usage is a table of months, each with its file', async () => {
  userServer({
    [`GET ${its}/usage`]: {
      items: [
        { month: '2026-10', allowed: 7, denied: 0, cost: 7, costs: {} },
        { month: '2026-11', allowed: 1000, denied: 3, cost: 1000.5, costs: {} },
      ],
      as_of: '2026-11-26T17:06:12.5Z',
    },
  });
  open('/t/acme/users/42');
  const table = await screen.findByRole('table', { name: 'Usage per month' });
  const [, latest, before] = within(table).getAllByRole('row');
  expect(latest?.textContent).toBe('Nov 2026, so far1,00031,000.5CSV');
  expect(before?.textContent).toBe('Oct 2026707CSV');
  expect(screen.getByText('Months in UTC, as of 17:06:12 UTC.')).toBeDefined();
  expect(within(table).getByRole('link', { name: 'CSV of Nov 2026' }).getAttribute('href')).toBe(
    `${base}/usage/export?by=user&user_id=42&from=2026-11&to=2026-11`,
  );
});

test('usage is read again while it is shown', async () => {
  vi.useFakeTimers({ shouldAdvanceTime: true });
  let denied = 3;
  userServer({
    [`GET ${its}/usage`]: () => ({
      json: {
        items: [{ month: '2026-11', allowed: 9, denied: denied++, cost: 9, costs: {} }],
        as_of: '2026-11-26T17:06:12Z',
      },
    }),
  });
  open('/t/acme/users/42');
  const table = await screen.findByRole('table', { name: 'Usage per month' });
  expect(table.textContent).toMatch(/939CSV/);
  await vi.advanceTimersByTimeAsync(15_000);
  await waitFor(() => expect(table.textContent).toMatch(/949CSV/));
});

test('buckets are read again after an override was saved', async () => {
  let saved = false;
  userServer({
    [`GET ${its}/buckets`]: () => ({ json: { items: [bucket({ overridden: saved })], has_more: false } }),
    [`PUT ${base}/rules/12/overrides/42`]: () => {
      saved = true;
      return { status: 201, json: override() };
    },
  });
  const { user } = open('/t/acme/users/42?override=12');
  const dialog = await screen.findByRole('dialog', { name: 'New override for user 42' });
  await user.type(within(dialog).getByLabelText(/^Reason/), 'x');
  await user.click(within(dialog).getByRole('button', { name: 'Save override' }));
  await waitFor(() => expect(screen.queryByRole('dialog')).toBeNull());
  const buckets = await screen.findByRole('list', { name: 'Buckets' });
  expect(await within(buckets).findByText('Override')).toBeDefined();
});
