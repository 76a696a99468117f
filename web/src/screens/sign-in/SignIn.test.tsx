import { screen, waitFor } from '@testing-library/react';
import { expect, test } from 'vitest';
import { fakeServer, problem, session } from '../../../test/fake';
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
