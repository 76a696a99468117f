import { screen, waitFor } from '@testing-library/react';
import { expect, test } from 'vitest';
import { account, fakeServer, page, problem, requested, session, tenant } from '../../../test/fake';
import { open } from '../../../test/render';
import { slugOf } from './NewTenant';

const admin = { ...session(), account: account({ platform_admin: true }) };

function server(more: Record<string, unknown>) {
  return fakeServer({
    'GET /api/v1/session': admin,
    'GET /api/v1/tenants': page([tenant()]),
    'GET /api/v1/removed-tenants': page([]),
    'GET /api/v1/accounts': page([account({ account_id: '2', email: 'bob@example.com', name: 'Bob' })]),
    ...more,
  });
}

test('a tenant is made, its slug following its name', async () => {
  const requests = server({
    'POST /api/v1/tenants': () => ({ status: 201, json: tenant({ slug: 'big-shop' }) }),
  });
  const { user } = open('/platform/tenants');
  await user.click(await screen.findByRole('button', { name: 'New tenant' }));
  await user.type(await screen.findByLabelText('Name'), 'Big Shop!');
  expect(screen.getByLabelText('Slug')).toHaveProperty('value', 'big-shop');
  await user.click(screen.getByRole('button', { name: 'Create tenant' }));
  expect((await requested(requests, 'POST')).body).toEqual({
    slug: 'big-shop',
    name: 'Big Shop!',
    default_plan: 'free',
  });
});

test.each([
  ['Acme Payments, Ltd.', 'acme-payments-ltd'],
  ['Bücher & Café', 'bucher-cafe'],
  ['!', ''],
])('the slug of %s is %s', (name, slug) => {
  expect(slugOf(name)).toBe(slug);
});

test('a tenant that is served can only be suspended, and that says its effect', async () => {
  const requests = server({
    'POST /api/v1/tenants/acme/suspend': tenant({ suspended: true }),
  });
  const { user } = open('/platform/tenants');
  await user.click(await screen.findByRole('button', { name: 'Actions of Acme' }));
  expect(screen.queryByRole('menuitem', { name: 'Remove …' })).toBeNull();
  await user.click(await screen.findByRole('menuitem', { name: 'Suspend …' }));
  expect(await screen.findByText(/Within 2 s its checks are refused with 403/)).toBeDefined();
  await user.click(screen.getByRole('button', { name: 'Suspend' }));
  await waitFor(() => expect(requests.some(({ path }) => path.endsWith('/suspend'))).toBe(true));
});

test('a suspended tenant is removed only when its slug was typed', async () => {
  const requests = server({
    'GET /api/v1/tenants': page([tenant({ suspended: true, version: 6 })]),
    'DELETE /api/v1/tenants/acme': () => ({ status: 204 }),
  });
  const { user } = open('/platform/tenants');
  await user.click(await screen.findByRole('button', { name: 'Actions of Acme' }));
  await user.click(await screen.findByRole('menuitem', { name: 'Remove …' }));
  const remove = await screen.findByRole('button', { name: 'Remove tenant' });
  expect(remove).toHaveProperty('disabled', true);
  await user.type(screen.getByLabelText('Type acme to confirm'), 'acme');
  await user.click(remove);
  expect((await requested(requests, 'DELETE')).headers.get('If-Match')).toBe('"6"');
});

test('a removed tenant is restored, and one that is erased shows its receipt', async () => {
  const removed = {
    slug: 'acme',
    name: 'Acme',
    removed_at: '2026-11-21T06:00:00Z',
    erase_after: '2026-12-21T06:00:00Z',
    restorable: true,
    erased_at: null,
    erased_rows: {},
  };
  const requests = server({
    'GET /api/v1/removed-tenants': page([
      removed,
      {
        ...removed,
        slug: 'old',
        name: 'old',
        restorable: false,
        erased_at: '2026-11-21T07:00:00Z',
        erased_rows: { plan: 2, rate_limit_rule: 3 },
      },
    ]),
    'POST /api/v1/removed-tenants/acme/restore': tenant({ suspended: true }),
  });
  const { user } = open('/platform/tenants');
  expect(await screen.findByText(/5 rows erased/)).toBeDefined();
  await user.click(screen.getByRole('button', { name: 'Restore' }));
  await waitFor(() => expect(requests.some(({ path }) => path.endsWith('/acme/restore'))).toBe(true));
});

test('an account is disabled after its effect was said; of the last admin the server says no', async () => {
  const requests = server({
    'PATCH /api/v1/accounts/2': () => problem(409, 'conflict', { detail: 'Somebody must be left.' }),
  });
  const { user } = open('/platform/accounts');
  await user.click(await screen.findByRole('button', { name: 'Actions of bob@example.com' }));
  await user.click(await screen.findByRole('menuitem', { name: 'Disable …' }));
  expect(await screen.findByText(/All their sessions end at once/)).toBeDefined();
  await user.click(screen.getByRole('button', { name: 'Disable' }));
  expect(await screen.findByText('Somebody must be left.')).toBeDefined();
  expect(requests.find(({ method }) => method === 'PATCH')?.body).toEqual({ disabled: true });
});

test('an account is signed out everywhere after that was confirmed', async () => {
  const requests = server({
    'DELETE /api/v1/accounts/2/sessions': () => ({ status: 204 }),
  });
  const { user } = open('/platform/accounts');
  await user.click(await screen.findByRole('button', { name: 'Actions of bob@example.com' }));
  await user.click(await screen.findByRole('menuitem', { name: 'Sign out everywhere …' }));
  expect(await screen.findByText(/They can sign in again/)).toBeDefined();
  expect(requests.some(({ method }) => method === 'DELETE')).toBe(false);
  await user.click(screen.getByRole('button', { name: 'Sign out everywhere' }));
  expect(await screen.findByText('Bob is signed out everywhere')).toBeDefined();
  expect(requests.filter(({ method }) => method === 'DELETE')).toHaveLength(1);
});

test.each(['tenants', 'accounts'])('who is no platform admin sees no %s', async (screenName) => {
  const requests = fakeServer({ 'GET /api/v1/session': session() });
  open(`/platform/${screenName}`);
  expect(await screen.findByText('You do not have permission')).toBeDefined();
  expect(requests.some(({ path }) => path === `/api/v1/${screenName}`)).toBe(false);
});

test('finding nothing says so', async () => {
  server({ 'GET /api/v1/tenants': page([]) });
  open('/platform/tenants?q=zzz');
  expect(await screen.findByText('No results')).toBeDefined();
});
