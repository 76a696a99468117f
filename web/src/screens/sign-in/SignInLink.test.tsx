import { screen, waitFor } from '@testing-library/react';
import { expect, test } from 'vitest';
import { fakeServer, problem, session } from '../../../test/fake';
import { open } from '../../../test/render';

const use = 'POST /api/v1/session/link';

test('a link is used by a click, and not by looking at it', async () => {
  let isSignedIn = false;
  const requests = fakeServer({
    'GET /api/v1/session': () => (isSignedIn ? { json: session() } : problem(401, 'unauthorized')),
    [use]: () => {
      isSignedIn = true;
      return { json: session() };
    },
  });
  const { user, router } = open('/sign-in-link#the-token');
  const button = await screen.findByRole('button', { name: 'Sign in' });
  expect(requests.some(({ method }) => method === 'POST')).toBe(false);
  await user.click(button);
  await waitFor(() => expect(router.state.location.pathname).toBe('/t/acme/overview'));
  expect(requests.find(({ method }) => method === 'POST')?.body).toEqual({ token: 'the-token' });
});

test('an account with a second factor shows a code after its link', async () => {
  let isSignedIn = false;
  fakeServer({
    'GET /api/v1/session': () => (isSignedIn ? { json: session() } : problem(401, 'unauthorized')),
    [use]: () => ({ status: 202, json: { expires_at: '2026-11-21T06:05:00Z' } }),
    'POST /api/v1/session/second-factor': () => {
      isSignedIn = true;
      return { json: session() };
    },
  });
  const { user, router } = open('/sign-in-link#the-token');
  await user.click(await screen.findByRole('button', { name: 'Sign in' }));
  await user.type(await screen.findByLabelText('Code'), '123456');
  await user.click(screen.getByRole('button', { name: 'Sign in' }));
  await waitFor(() => expect(router.state.location.pathname).toBe('/t/acme/overview'));
});

test.each([
  ['without a token', '/sign-in-link', false],
  ['that was used', '/sign-in-link#the-token', true],
])('a link %s says so, and leads to signing in', async (_, path, click) => {
  fakeServer({
    'GET /api/v1/session': () => problem(401, 'unauthorized'),
    [use]: () => problem(404, 'not-found'),
  });
  const { user } = open(path);
  if (click) await user.click(await screen.findByRole('button', { name: 'Sign in' }));
  expect(await screen.findByRole('heading', { name: 'This link is no longer valid' })).toBeDefined();
  expect(screen.getByRole('link', { name: 'Sign in' }).getAttribute('href')).toBe('/sign-in');
});

test('a server that cannot answer now leaves the link to be tried again', async () => {
  fakeServer({
    'GET /api/v1/session': () => problem(401, 'unauthorized'),
    [use]: () => problem(503, 'unavailable', { detail: 'Try again in a moment.' }),
  });
  const { user } = open('/sign-in-link#the-token');
  await user.click(await screen.findByRole('button', { name: 'Sign in' }));
  expect((await screen.findByRole('alert')).textContent).toMatch(/Try again in a moment/);
  expect(screen.getByRole('button', { name: 'Sign in' })).toBeDefined();
});
