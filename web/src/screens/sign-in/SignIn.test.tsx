import { screen, waitFor, within } from '@testing-library/react';
import { expect, test, vi } from 'vitest';
import { account, fakeServer, problem, session } from '../../../test/fake';
import { open } from '../../../test/render';

const signIn = 'POST /api/v1/session';
const finish = 'POST /api/v1/session/second-factor';

test('an account with a second factor signs in by two steps', async () => {
  let step = 0;
  const requests = fakeServer({
    'GET /api/v1/session': () => (step > 1 ? { json: session() } : problem(401, 'unauthorized')),
    'GET /api/v1/sign-in': { mail: false, passwords: true, providers: [] },
    [signIn]: () => ({ status: 202, json: { expires_at: '2026-11-21T06:05:00Z' } }),
    [finish]: () => {
      step += 1;
      return step === 1
        ? problem(400, 'invalid-request', { errors: [{ pointer: '/code', detail: 'is wrong' }] })
        : { json: session() };
    },
  });
  const { user, router } = open('/sign-in');
  await user.type(await screen.findByLabelText('E-mail'), 'ada@example.com');
  await user.type(screen.getByLabelText('Password'), 'eight old grey cats');
  await user.click(screen.getByRole('button', { name: 'Sign in' }));
  await user.type(await screen.findByLabelText('Code'), '111111');
  await user.click(screen.getByRole('button', { name: 'Sign in' }));
  expect(await screen.findByText('The code is wrong')).toBeDefined();
  await user.type(screen.getByLabelText('Code'), '123456');
  await user.click(screen.getByRole('button', { name: 'Sign in' }));
  await waitFor(() => expect(router.state.location.pathname).toBe('/t/acme/overview'));
  expect(requests.filter(({ path }) => path.endsWith('/second-factor')).map(({ body }) => body)).toEqual([
    { code: '111111' },
    { code: '123456' },
  ]);
});

test('a second step that is over leads back to the password', async () => {
  fakeServer({
    'GET /api/v1/session': () => problem(401, 'unauthorized'),
    'GET /api/v1/sign-in': { mail: false, passwords: true, providers: [] },
    [signIn]: () => ({ status: 202, json: { expires_at: '2026-11-21T06:05:00Z' } }),
    [finish]: () => problem(401, 'unauthorized'),
  });
  const { user } = open('/sign-in');
  await user.type(await screen.findByLabelText('E-mail'), 'ada@example.com');
  await user.type(screen.getByLabelText('Password'), 'eight old grey cats');
  await user.click(screen.getByRole('button', { name: 'Sign in' }));
  await user.type(await screen.findByLabelText('Code'), '111111');
  await user.click(screen.getByRole('button', { name: 'Sign in' }));
  expect(await screen.findByText(/Sign in again/)).toBeDefined();
  expect(screen.getByLabelText('Password')).toHaveProperty('value', '');
});

test('a tenant that requires a second factor leads to the profile', async () => {
  const own = session();
  const memberships = own.memberships.map((one) => ({ ...one, second_factor_required: true }));
  fakeServer({
    'GET /api/v1/session': { ...own, memberships },
    'GET /api/v1/tenants': { items: [], next_cursor: null },
  });
  open('/t/acme/rules');
  expect(await screen.findByRole('heading', { name: 'Set up a second factor first' })).toBeDefined();
  expect(screen.getByRole('link', { name: 'Set up on your profile' }).getAttribute('href')).toBe('/profile');
});

test('a password is masked, can be pasted, and filled in by a password manager', async () => {
  fakeServer({ 'GET /api/v1/session': () => problem(401, 'unauthorized') });
  const { user } = open('/sign-in');
  const password = (await screen.findByLabelText('Password')) as HTMLInputElement;
  expect(password.type).toBe('password');
  expect(password.autocomplete).toBe('current-password');
  expect((screen.getByLabelText('E-mail') as HTMLInputElement).autocomplete).toBe('username');
  await user.click(password);
  await user.paste('eight old grey cats');
  expect(password.value).toBe('eight old grey cats');
});

const refusal = 'There is no such account. People who joined by a link sign in at their tenant’s address.';

function acmeOnly() {
  let signedIn = false;
  return fakeServer({
    'GET /api/v1/session': () => (signedIn ? { json: session() } : problem(401, 'unauthorized')),
    'GET /api/v1/sign-in': { mail: true, passwords: true, providers: [] },
    [signIn]: ({ body }: { body: unknown }) => {
      signedIn = (body as { tenant?: string }).tenant === 'acme';
      return signedIn ? { json: session() } : problem(401, 'unauthorized', { detail: refusal });
    },
    'DELETE /api/v1/session': () => {
      signedIn = false;
      return { status: 204 };
    },
  });
}

async function submit(user: ReturnType<typeof open>['user']) {
  await user.clear(await screen.findByLabelText('E-mail'));
  await user.type(screen.getByLabelText('E-mail'), 'ada@example.com');
  await user.type(screen.getByLabelText('Password'), 'eight old grey cats');
  await user.click(screen.getByRole('button', { name: 'Sign in' }));
}

test.each(['acme', ' https://limits.example.com/sign-in/Acme '])(
  'somebody who joined by a link is refused, names the tenant as %j, and is remembered by the browser',
  async (typed) => {
    const requests = acmeOnly();
    const { user, router } = open('/sign-in');
    await submit(user);
    expect((await screen.findByRole('alert')).textContent).toBe(refusal);
    expect(screen.queryByLabelText('Tenant')).toBeNull();
    await user.click(screen.getByRole('button', { name: 'I joined by a link' }));
    await user.type(screen.getByLabelText('Tenant'), typed);
    await submit(user);
    await waitFor(() => expect(router.state.location.pathname).toBe('/t/acme/overview'));
    const sent = requests.filter(({ method }) => method === 'POST').map(({ body }) => body);
    expect(sent).toEqual([
      { email: 'ada@example.com', password: 'eight old grey cats' },
      { email: 'ada@example.com', password: 'eight old grey cats', tenant: 'acme' },
    ]);
    await router.navigate({ to: '/profile' });
    await user.click(await screen.findByRole('button', { name: /^Account:/ }));
    await user.click(await screen.findByRole('menuitem', { name: 'Sign out' }));
    await waitFor(() => expect(router.state.location.pathname).toBe('/sign-in/acme'));
    expect(screen.getByRole('heading', { name: 'Sign in to acme' })).toBeDefined();
  },
);

test.each([
  ['a link to a tenant', '/t/acme/try', '/sign-in/acme'],
  ['a link to the start of a tenant', '/t/acme', '/sign-in/acme'],
  ['the page itself, with where to go on', '/sign-in?next=/t/acme/try', '/sign-in/acme'],
  ['another page', '/profile', '/sign-in/last'],
  ['the page itself', '/sign-in?failed=denied&provider=example', '/sign-in/last'],
  ['a page with an odd name', '/t/%2e%2e%2fevil/try', '/sign-in/last'],
])('%s leads to the sign-in of its tenant, or of the last one', async (_, path, wanted) => {
  localStorage.setItem('sluice-tenant', 'last');
  acmeOnly();
  const { router } = open(path);
  await screen.findByLabelText('E-mail');
  expect(router.state.location.pathname).toBe(wanted);
  if (path.startsWith('/sign-in?failed')) {
    expect(router.state.location.search).toEqual({ failed: 'denied', provider: 'example' });
  }
});

test('a tenant that somebody is not in is not remembered', async () => {
  localStorage.setItem('sluice-tenant', 'acme');
  fakeServer({
    'GET /api/v1/session': session(),
    'GET /api/v1/tenants/other': () => problem(404, 'not-found'),
    'GET /api/v1/tenants/other/scheduled-changes': () => problem(404, 'not-found'),
  });
  const { router } = open('/t/other/settings/gateways');
  await waitFor(() => expect(router.state.location.pathname).toBe('/t/other/settings/gateways'));
  await waitFor(() => expect(router.state.status).toBe('idle'));
  expect(localStorage.getItem('sluice-tenant')).toBe('acme');
});

test('a link to one tenant does not hold up who signs in to another', async () => {
  const requests = acmeOnly();
  const { user, router } = open('/t/other/overview');
  await user.click(await screen.findByRole('button', { name: 'Another tenant' }));
  await user.retype(screen.getByLabelText('Tenant'), 'acme');
  await submit(user);
  await waitFor(() => expect(router.state.location.pathname).toBe('/t/acme/overview'));
  expect(requests.find(({ method }) => method === 'POST')?.body).toMatchObject({ tenant: 'acme' });
});

test('who forgot a password at a tenant comes back to it', async () => {
  acmeOnly();
  const { user, router } = open('/sign-in/acme');
  await user.click(await screen.findByRole('link', { name: 'Forgot your password?' }));
  await user.click(await screen.findByRole('link', { name: 'Back to sign-in' }));
  await waitFor(() => expect(router.state.location.pathname).toBe('/sign-in/acme'));
});

test('signing in at a provider goes on at the tenant, and comes back there', async () => {
  const assign = vi.fn();
  vi.stubGlobal('location', { ...window.location, assign });
  const requests = fakeServer({
    'GET /api/v1/session': () => problem(401, 'unauthorized'),
    'GET /api/v1/sign-in': {
      mail: false,
      passwords: true,
      providers: [{ slug: 'example', name: 'Example' }],
    },
    'POST /api/v1/auth/example/start': { url: 'https://example.com/authorize' },
  });
  const { user } = open('/sign-in/acme?next=/t/acme/rules');
  await user.click(await screen.findByRole('button', { name: 'Sign in with Example' }));
  await waitFor(() => expect(assign).toHaveBeenCalledWith('https://example.com/authorize'));
  expect(requests.find(({ method }) => method === 'POST')?.body).toEqual({ next: '/t/acme/rules' });
  expect(localStorage.getItem('sluice-tenant')).toBe('acme');
});

test('the profile of somebody who joined by a link has the sign-in address', async () => {
  fakeServer({
    'GET /api/v1/session': { ...session(), account: account({ proven: false }) },
    'GET /api/v1/sessions': { items: [] },
    'GET /api/v1/account/security-log': { items: [], next_cursor: null },
  });
  open('/profile');
  const card = (await screen.findByText(/Your sign-in address is/)).closest('p');
  expect(within(card as HTMLElement).getByText(`${window.location.origin}/sign-in/acme`)).toBeDefined();
  expect(document.body.textContent).not.toMatch(/proven/i);
});
