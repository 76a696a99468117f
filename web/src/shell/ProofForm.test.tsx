import { screen, waitFor, within } from '@testing-library/react';
import { afterEach, expect, test, vi } from 'vitest';
import { account, fakeServer, problem, session } from '../../test/fake';
import { open } from '../../test/render';

afterEach(() => vi.unstubAllGlobals());

const at = '2026-11-21T06:00:00Z';
const linked = {
  identity_id: '7',
  provider: { slug: 'example', name: 'Example' },
  issuer: 'https://login.example.com',
  email: 'ada@example.com',
  created_at: at,
  last_used_at: null,
};
const gone = { ...linked, identity_id: '8', provider: null, issuer: 'https://gone.example.com' };
const stale = () => problem(403, 'fresh-proof-required');
const confirm = 'POST /api/v1/session/confirm/provider';

async function refused(more: Record<string, unknown>, own = session(), button = 'Unlink Example …') {
  const requests = fakeServer({
    'GET /api/v1/session': { ...own, has_password: false },
    'GET /api/v1/sessions': { items: [] },
    'GET /api/v1/account/security-log': { items: [], next_cursor: null },
    'GET /api/v1/account/identities': { items: [linked, gone] },
    'GET /api/v1/account/second-factor': {
      enabled: own.account.second_factor,
      since: own.account.second_factor ? at : null,
      recovery_codes: 10,
      available: true,
    },
    'POST /api/v1/account/identities/7/unlink': stale,
    ...more,
  });
  const { user } = open('/profile');
  await user.click(await screen.findByRole('button', { name: button }));
  await user.click(await screen.findByRole('button', { name: 'Unlink' }));
  await screen.findByText(/you signed in more than 10 minutes ago/);
  return { requests, user };
}

test('somebody without a password is led to their provider, with the way back', async () => {
  const { requests, user } = await refused({
    [confirm]: () => problem(503, 'unavailable', { detail: 'Example does not answer.' }),
  });
  expect(screen.queryByLabelText('Your password')).toBeNull();
  expect(screen.queryByRole('button', { name: /^Continue at .*gone/ })).toBeNull();
  await user.click(await screen.findByRole('button', { name: 'Continue at Example' }));
  expect(await screen.findByText(/Example does not answer/)).toBeDefined();
  expect(requests.find(({ path }) => path.endsWith('/confirm/provider'))?.body).toMatchObject({
    provider: 'example',
    next: expect.stringMatching(/^\//),
  });
  const dialog = screen.getByRole('dialog', { name: 'Confirm that it is you' });
  await user.click(within(dialog).getByRole('button', { name: 'Cancel' }));
  await waitFor(() => expect(screen.queryByRole('button', { name: 'Continue at Example' })).toBeNull());
});

test('an account with a second factor shows its code before it leaves', async () => {
  const own = { ...session(), account: account({ second_factor: true }) };
  const { requests, user } = await refused(
    {
      [confirm]: () => problem(400, 'invalid-request', { errors: [{ pointer: '/code', detail: 'is wrong' }] }),
    },
    own,
  );
  await user.type(await screen.findByLabelText('Code'), '123456');
  await user.click(screen.getByRole('button', { name: 'Continue at Example' }));
  expect(await screen.findByText('The code is wrong')).toBeDefined();
  expect(requests.find(({ path }) => path.endsWith('/confirm/provider'))?.body).toMatchObject({
    code: '123456',
  });
});

test('without a linked provider it says what to do', async () => {
  await refused(
    {
      'GET /api/v1/account/identities': { items: [gone] },
      'POST /api/v1/account/identities/8/unlink': stale,
    },
    session(),
    `Unlink ${gone.issuer} …`,
  );
  expect(await screen.findByText(/Sign out, and sign in again/)).toBeDefined();
});

test('the page after the provider leads back, or says why not', async () => {
  fakeServer({
    'GET /api/v1/session': { ...session(), has_password: false },
    'GET /api/v1/sign-in': {
      mail: false,
      passwords: false,
      providers: [{ slug: 'example', name: 'Example' }],
    },
    'GET /api/v1/sessions': { items: [] },
    'GET /api/v1/account/security-log': { items: [], next_cursor: null },
    'GET /api/v1/account/identities': { items: [linked] },
    'GET /api/v1/account/second-factor': { enabled: false, since: null, recovery_codes: 0, available: true },
  });
  const { router } = open('/confirmed?provider=example&next=/profile');
  await waitFor(() => expect(router.state.location.pathname).toBe('/profile'));
  expect(await screen.findByText(/Your change was not made yet/)).toBeDefined();
});

test('the page after a failure names the provider and keeps the way back on this site', async () => {
  fakeServer({
    'GET /api/v1/sign-in': {
      mail: false,
      passwords: false,
      providers: [{ slug: 'example', name: 'Example' }],
    },
  });
  open('/confirmed?failed=not_asked_again&provider=example&next=//evil.example.com');
  expect(await screen.findByText(/Example did not ask you to sign in again/)).toBeDefined();
  expect(screen.getByRole('link', { name: 'Back to where you were' }).getAttribute('href')).toBe('/');
});
