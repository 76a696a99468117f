import { screen, waitFor } from '@testing-library/react';
import { expect, test } from 'vitest';
import { account, fakeServer, problem, session } from '../../../test/fake';
import { open } from '../../../test/render';

const offer = {
  tenant: { slug: 'acme', name: 'Acme' },
  email: 'ada@example.com',
  role: 'editor',
  invited_by: 'grace@example.com',
  proves: true,
  expires_at: '2026-11-28T06:00:00Z',
};
const look = 'POST /api/v1/invitations/look';
const accept = 'POST /api/v1/invitations/accept';

test('somebody new makes an account and begins in the tenant', async () => {
  let joined = false;
  const requests = fakeServer({
    'GET /api/v1/session': () => (joined ? { json: session() } : problem(401, 'unauthorized')),
    [look]: offer,
    [accept]: () => {
      joined = true;
      return { json: session() };
    },
  });
  const { user, router } = open('/invitation#3q2-7wAB9x');
  await user.type(await screen.findByLabelText('Your name'), 'Ada');
  await user.type(screen.getByLabelText('Choose a password'), 'eight old grey cats');
  await user.click(screen.getByRole('button', { name: 'Create account and join' }));
  await waitFor(() => expect(router.state.location.pathname).toBe('/t/acme/overview'));
  expect(requests.find(({ path }) => path.endsWith('/look'))?.body).toEqual({ token: '3q2-7wAB9x' });
  const sent = requests.find(({ path }) => path.endsWith('/accept'));
  expect(sent?.body).toEqual({ token: '3q2-7wAB9x', name: 'Ada', password: 'eight old grey cats' });
});

test('a weak password says what a good one needs, at its field', async () => {
  fakeServer({
    'GET /api/v1/session': () => problem(401, 'unauthorized'),
    [look]: offer,
    [accept]: () => problem(400, 'invalid-request', { errors: [{ pointer: '/password', detail: 'is a common one' }] }),
  });
  const { user } = open('/invitation#t');
  await user.type(await screen.findByLabelText('Your name'), 'Ada');
  await user.type(screen.getByLabelText('Choose a password'), 'password12');
  await user.click(screen.getByRole('button', { name: 'Create account and join' }));
  expect(await screen.findByText('is a common one')).toBeDefined();
});

test('somebody with an account signs in first, and the token stays in the fragment', async () => {
  fakeServer({ 'GET /api/v1/session': () => problem(401, 'unauthorized'), [look]: offer });
  const { user, router } = open('/invitation#3q2-7wAB9x');
  await user.click(await screen.findByRole('link', { name: 'Sign in first' }));
  await waitFor(() => expect(router.state.location.pathname).toBe('/sign-in/acme'));
  expect(router.state.location.search).toEqual({ next: '/invitation' });
  expect(router.state.location.hash).toBe('3q2-7wAB9x');
});

test('somebody who is signed in joins with one press', async () => {
  const requests = fakeServer({ 'GET /api/v1/session': session(), [look]: offer, [accept]: session() });
  const { user, router } = open('/invitation#t');
  await user.click(await screen.findByRole('button', { name: 'Join Acme' }));
  await waitFor(() => expect(router.state.location.pathname).toBe('/t/acme/overview'));
  expect(requests.find(({ path }) => path.endsWith('/accept'))?.body).toEqual({ token: 't' });
});

test('an invitation for somebody else cannot be accepted by mistake', async () => {
  fakeServer({
    'GET /api/v1/session': { ...session(), account: account({ email: 'bob@example.com' }) },
    [look]: offer,
  });
  open('/invitation#t');
  expect(await screen.findByText(/for another address/)).toBeDefined();
  expect(screen.queryByRole('button', { name: 'Join Acme' })).toBeNull();
  expect(screen.getByRole('button', { name: 'Sign out' })).toBeDefined();
});

test('who joined another tenant by a link signs out first, and is told why', async () => {
  const own = session();
  fakeServer({
    'GET /api/v1/session': {
      ...own,
      account: account({ proven: false }),
      memberships: own.memberships.map((one) => ({ ...one, tenant: { slug: 'other', name: 'Other' } })),
    },
    [look]: { ...offer, proves: false },
  });
  open('/invitation#t');
  expect(await screen.findByText(/with an account for Other only/)).toBeDefined();
  expect(screen.queryByRole('button', { name: 'Join Acme' })).toBeNull();
  expect(screen.getByRole('button', { name: 'Sign out' })).toBeDefined();
});

test('somebody who joins by a link is told the sign-in address', async () => {
  fakeServer({
    'GET /api/v1/session': () => problem(401, 'unauthorized'),
    [look]: { ...offer, proves: false },
  });
  open('/invitation#t');
  expect(await screen.findByText(`${window.location.origin}/sign-in/acme`)).toBeDefined();
  expect(document.body.textContent).not.toMatch(/proven/i);
});

test.each(['/invitation', '/invitation#old'])('%s opens nothing, and says so', async (address) => {
  fakeServer({
    'GET /api/v1/session': () => problem(401, 'unauthorized'),
    [look]: () => problem(404, 'not-found'),
  });
  open(address);
  expect(await screen.findByRole('heading', { name: 'This invitation is no longer valid' })).toBeDefined();
});
