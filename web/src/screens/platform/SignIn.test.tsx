import { screen, waitFor, within } from '@testing-library/react';
import userEvent from '@testing-library/user-event';
import { expect, test, vi } from 'vitest';
import { account, fakeServer, problem, type Reply, session } from '../../../test/fake';
import { open } from '../../../test/render';

const admin = { ...session(), account: account({ platform_admin: true }) };
const at = '2026-11-21T06:00:00Z';
const provider = {
  slug: 'example',
  name: 'Example',
  issuer: 'https://login.example.com',
  redirect_url: 'https://sluice.example.com/api/v1/auth/example/callback',
  email_domains: ['example.com', 'example.org'],
  required_claim: 'employee=true',
  creates_accounts: true,
  gives_roles: true,
  second_factor: true,
  second_factor_claim: 'amr=mfa',
  sign_out: true,
  problem: null,
  checked_at: at,
  failures: [{ at, count: 3, reason: 'claim', detail: '"eve@example.com" lacks the claim employee=true' }],
};
const list = 'GET /api/v1/identity-providers';

test('a provider is shown with its rules, its state and who could not sign in', async () => {
  fakeServer({ 'GET /api/v1/session': admin, [list]: { items: [provider] } });
  open('/platform/sign-in');
  expect(await screen.findByText('Answers')).toBeDefined();
  expect(screen.getByText(provider.redirect_url)).toBeDefined();
  expect(
    screen.getByText('verified addresses of example.com, example.org, with the claim employee=true'),
  ).toBeDefined();
  expect(screen.getByText('a sign-in there with amr=mfa counts as two factors')).toBeDefined();
  const failures = screen.getByRole('list', { name: 'Sign-ins that failed at Example' });
  expect(within(failures).getByText(/lacks the claim/)).toBeDefined();
  expect(within(failures).getByText(/3 times, last/)).toBeDefined();
});

test('a provider that is down says why, and can be checked again', async () => {
  let asked = 0;
  fakeServer({
    'GET /api/v1/session': admin,
    [list]: () => {
      asked += 1;
      return {
        json: { items: [{ ...provider, failures: [], problem: asked === 1 ? '503 from there' : null }] },
      };
    },
  });
  const { user } = open('/platform/sign-in');
  expect(await screen.findByText('Does not answer')).toBeDefined();
  expect(screen.getByText(/503 from there/)).toBeDefined();
  expect(screen.getByText(/None since the process started/)).toBeDefined();
  await user.click(screen.getByRole('button', { name: 'Check again' }));
  expect(await screen.findByText('Answers')).toBeDefined();
});

test('without providers the page says how to get one', async () => {
  fakeServer({ 'GET /api/v1/session': admin, [list]: { items: [] } });
  open('/platform/sign-in');
  expect(await screen.findByText(/Set SLUICE_OIDC_FILE/)).toBeDefined();
});

test('a list that cannot be read can be asked for again', async () => {
  fakeServer({ 'GET /api/v1/session': admin, [list]: () => problem(500, 'internal') });
  open('/platform/sign-in');
  expect(await screen.findByRole('button', { name: /again/i })).toBeDefined();
});

test('only platform admins see the providers', async () => {
  const requests = fakeServer({ 'GET /api/v1/session': session() });
  open('/platform/sign-in');
  expect(await screen.findByText('This requires a platform admin.')).toBeDefined();
  expect(requests.some(({ path }) => path.endsWith('/identity-providers'))).toBe(false);
});

test('an address that a stranger typed is marked before it, where no column cuts it off', async () => {
  const event = {
    event_id: '1',
    at,
    count: 1,
    kind: 'sign_in_failed',
    succeeded: false,
    account_id: null,
    who: '',
    typed: 'somebody-with-a-very-long-name@a-very-long-domain.example.com',
    key_id: '',
    tenant: '',
    ip: '203.0.113.66',
    user_agent: '',
    detail: 'password',
    request_id: 'r',
  };
  fakeServer({
    'GET /api/v1/session': admin,
    'GET /api/v1/security-log': { items: [event], next_cursor: null },
  });
  open('/platform/security-log');
  const cell = await screen.findByTitle(`${event.typed}, as typed by a stranger`);
  expect(cell.textContent).toBe(`typed ${event.typed}`);
});

test('the security log is saved as a file, or says why not', async () => {
  const saved: Blob[] = [];
  vi.spyOn(URL, 'createObjectURL').mockImplementation((file) => `blob:${saved.push(file as Blob)}`);
  vi.spyOn(HTMLAnchorElement.prototype, 'click').mockImplementation(() => {});
  let reply: Reply = problem(400, 'invalid-request', { detail: 'Choose a shorter time, or a filter.' });
  fakeServer({
    'GET /api/v1/session': admin,
    'GET /api/v1/security-log': { items: [], next_cursor: null },
    'GET /api/v1/security-log/export': () => reply,
  });
  open('/platform/security-log?kind=signed_in');
  const user = userEvent.setup();
  await user.click(await screen.findByRole('button', { name: 'Export CSV' }));
  expect((await screen.findByRole('alert')).textContent).toMatch(/Choose a shorter time/);
  expect(saved).toHaveLength(0);
  reply = { csv: 'event_id,at\n' };
  await user.click(screen.getByRole('button', { name: 'Export CSV' }));
  await waitFor(() => expect(saved).toHaveLength(1));
});
