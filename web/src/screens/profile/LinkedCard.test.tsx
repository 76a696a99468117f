import { screen, waitFor, within } from '@testing-library/react';
import { expect, test } from 'vitest';
import { fakeServer, problem, session } from '../../../test/fake';
import { open } from '../../../test/render';

const at = '2026-11-21T06:00:00Z';
const example = { slug: 'example', name: 'Example' };
const linked = {
  identity_id: '7',
  provider: example,
  issuer: 'https://login.example.com',
  email: 'ada@example.com',
  created_at: at,
  last_used_at: at,
};
const gone = {
  ...linked,
  identity_id: '8',
  provider: null,
  issuer: 'https://gone.example.com',
  last_used_at: null,
};
const identities = '/api/v1/account/identities';

function server(more: Record<string, unknown> = {}) {
  return fakeServer({
    'GET /api/v1/session': session(),
    'GET /api/v1/sessions': { items: [] },
    'GET /api/v1/account/security-log': { items: [], next_cursor: null },
    'GET /api/v1/account/second-factor': { enabled: false, since: null, recovery_codes: 0, available: true },
    'GET /api/v1/sign-in': { mail: false, passwords: true, providers: [example] },
    [`GET ${identities}`]: { items: [] },
    ...more,
  });
}

test('nothing is shown where there are no providers and no links', async () => {
  server({ 'GET /api/v1/sign-in': { mail: false, passwords: true, providers: [] } });
  open('/profile');
  expect(await screen.findByRole('heading', { name: 'Second factor' })).toBeDefined();
  expect(screen.queryByText('Linked accounts')).toBeNull();
});

test('somebody without links reads what one is for, and a failure to link stays in the dialog', async () => {
  const requests = server({
    [`POST ${identities}`]: () => problem(503, 'unavailable', { detail: 'Example does not answer.' }),
  });
  const { user } = open('/profile');
  expect(await screen.findByText(/None yet/)).toBeDefined();
  await user.click(screen.getByRole('button', { name: 'Link Example …' }));
  const dialog = await screen.findByRole('dialog', { name: 'Link Example' });
  await user.click(within(dialog).getByRole('button', { name: 'Go to Example' }));
  expect(await within(dialog).findByText(/Example does not answer/)).toBeDefined();
  expect(requests.find(({ method }) => method === 'POST')?.body).toEqual({ provider: 'example' });
});

test('a link of a provider that is gone says that it signs in nobody', async () => {
  server({ [`GET ${identities}`]: { items: [linked, gone] } });
  open('/profile');
  expect(await screen.findByText(/signs in nobody/)).toBeDefined();
  expect(screen.getByText('https://gone.example.com')).toBeDefined();
  expect(screen.getByRole('button', { name: 'Unlink Example …' })).toBeDefined();
});

test('a link is removed once that was confirmed, and of the last way in the server says no', async () => {
  let tries = 0;
  const requests = server({
    [`GET ${identities}`]: () => ({ json: { items: tries > 1 ? [] : [linked] } }),
    [`POST ${identities}/7/unlink`]: () => {
      tries += 1;
      return tries === 1 ? problem(409, 'conflict', { detail: 'You could not sign in without it.' }) : { status: 204 };
    },
  });
  const { user } = open('/profile');
  await user.click(await screen.findByRole('button', { name: 'Unlink Example …' }));
  const dialog = await screen.findByRole('dialog', { name: 'Unlink Example?' });
  await user.click(within(dialog).getByRole('button', { name: 'Unlink' }));
  expect(await within(dialog).findByText(/could not sign in without it/)).toBeDefined();
  await user.click(within(dialog).getByRole('button', { name: 'Unlink' }));
  expect(await screen.findByText(/None yet/)).toBeDefined();
  await waitFor(() => expect(screen.queryByRole('dialog')).toBeNull());
  expect(requests.filter(({ path }) => path.endsWith('/7/unlink'))).toHaveLength(2);
});

test('what became of linking is said in words, by the provider’s name', async () => {
  server({ [`GET ${identities}`]: { items: [linked] } });
  open('/profile?linked=example');
  expect(await screen.findByText('Example is linked.')).toBeDefined();
});

test('why linking failed is said in words, even for a provider that is unknown', async () => {
  server();
  open('/profile?failed=identity_taken&provider=other');
  expect(
    await screen.findByText('The provider signed you in, but that identity is linked with an account already.'),
  ).toBeDefined();
});
