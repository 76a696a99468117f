import { screen, waitFor } from '@testing-library/react';
import { expect, test } from 'vitest';
import { account, fakeServer, problem, session } from '../../../test/fake';
import { open } from '../../../test/render';

const stranger = { 'GET /api/v1/session': () => problem(401, 'unauthorized') };
const options = { 'GET /api/v1/sign-in': { mail: true, passwords: true, providers: [] } };

test('who forgot a password is told the same for every address', async () => {
  const requests = fakeServer({
    ...stranger,
    ...options,
    'POST /api/v1/password-reset': () => ({ status: 204 }),
  });
  const { user } = open('/sign-in');
  await user.click(await screen.findByRole('link', { name: 'Forgot your password?' }));
  await user.type(await screen.findByLabelText('E-mail'), 'ada@example.com');
  await user.click(screen.getByRole('button', { name: 'Send link' }));
  expect(await screen.findByText(/If ada@example.com has an account/)).toBeDefined();
  expect(requests.find(({ method }) => method === 'POST')?.body).toEqual({ email: 'ada@example.com' });
});

test('a new password is chosen with the token of the fragment, which is gone afterwards', async () => {
  let asked = 0;
  const requests = fakeServer({
    ...stranger,
    ...options,
    'POST /api/v1/password-reset/finish': () =>
      asked++ === 0
        ? problem(400, 'invalid-request', { errors: [{ pointer: '/password', detail: 'must be longer' }] })
        : { status: 204 },
  });
  const { user, router } = open('/reset-password#the-token');
  const field = await screen.findByLabelText('New password');
  await user.type(field, 'short');
  await user.click(screen.getByRole('button', { name: 'Save password' }));
  expect(await screen.findByText('must be longer', { exact: false })).toBeDefined();
  await user.type(field, ' no more');
  await user.click(screen.getByRole('button', { name: 'Save password' }));
  await waitFor(() => expect(router.state.location.pathname).toBe('/sign-in'));
  expect(router.state.location.hash).toBe('');
  expect(requests.filter(({ method }) => method === 'POST').map(({ body }) => body)).toEqual([
    { token: 'the-token', password: 'short' },
    { token: 'the-token', password: 'short no more' },
  ]);
});

test('a reset link that was used, or has no token, leads to another one', async () => {
  fakeServer({
    ...stranger,
    ...options,
    'POST /api/v1/password-reset/finish': () => problem(404, 'not-found'),
  });
  const { user } = open('/reset-password#the-token');
  await user.type(await screen.findByLabelText('New password'), 'eight old grey cats');
  await user.click(screen.getByRole('button', { name: 'Save password' }));
  expect(await screen.findByText('This link is no longer valid')).toBeDefined();
  expect(screen.getByRole('link', { name: 'Ask for another' })).toBeDefined();
});

test('a stranger with a link that proves an address signs in first, and keeps its token', async () => {
  fakeServer({ ...stranger, ...options });
  const { user, router } = open('/prove-address#the-token');
  await user.click(await screen.findByRole('link', { name: 'Sign in' }));
  await waitFor(() => expect(router.state.location.pathname).toBe('/sign-in'));
  expect(router.state.location.search).toEqual({ next: '/prove-address' });
  expect(router.state.location.hash).toBe('the-token');
});

test('an address is proven by a click, and not by looking at the link', async () => {
  const requests = fakeServer({
    ...options,
    'GET /api/v1/session': session(),
    'POST /api/v1/account/proof/finish': account(),
  });
  const { user } = open('/prove-address#the-token');
  const button = await screen.findByRole('button', { name: 'Verify the address' });
  expect(requests.some(({ method }) => method === 'POST')).toBe(false);
  await user.click(button);
  expect(await screen.findByText('Address verified')).toBeDefined();
  expect(requests.find(({ method }) => method === 'POST')?.body).toEqual({ token: 'the-token' });
});
