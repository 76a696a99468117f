import { screen, waitFor } from '@testing-library/react';
import { expect, test } from 'vitest';
import { account, fakeServer, page, problem, requested, securityEvent, session } from '../../../test/fake';
import { open } from '../../../test/render';

const at = '2026-11-21T06:00:00Z';
const sessions = {
  items: [
    { session_id: '1', current: true, created_at: at, last_seen_at: at, user_agent: 'curl/8.5.0', ip: null },
    { session_id: '2', current: false, created_at: at, last_seen_at: at, user_agent: '', ip: '203.0.113.9' },
  ],
};

const failed = securityEvent({ at, count: 3, kind: 'sign_in_failed', typed: 'ada@example.com', detail: 'password' });

function server(more: Record<string, unknown> = {}) {
  return fakeServer({
    'GET /api/v1/session': session(),
    'GET /api/v1/sessions': sessions,
    'GET /api/v1/account/security-log': page([failed]),
    ...more,
  });
}

test('who tried to get in is shown', async () => {
  server();
  open('/profile');
  expect(await screen.findByText('Sign-in failed, 3 times')).toBeDefined();
  expect(screen.getByText(/203.0.113.66/)).toBeDefined();
});

test('what was done over and over is one entry', async () => {
  const exported = (event_id: string, at: string) => ({
    ...failed,
    ...{ event_id, at, count: 1, kind: 'exported', succeeded: true, tenant: 'demo', ip: '203.0.113.9' },
  });
  server({
    'GET /api/v1/account/security-log': page([
      exported('9', '2026-11-21T06:00:00Z'),
      exported('8', '2026-11-19T06:00:00Z'),
      exported('7', '2026-11-18T06:00:00Z'),
    ]),
  });
  open('/profile');
  const entry = (await screen.findByText('Exported data, 3 times')).closest('li');
  expect(entry?.textContent).toMatch(/in demo203\.0\.113\.9 · curl · first .+ ago, last .+ ago$/);
  expect(screen.getByText('3 events')).toBeDefined();
});

test('sessions that an admin ended say so, without an address or a browser', async () => {
  const ended = { kind: 'sessions_ended', succeeded: true, count: 1, ip: null, user_agent: '' };
  server({
    'GET /api/v1/account/security-log': page([
      { ...failed, ...ended, event_id: '3', detail: 'by a platform admin' },
      { ...failed, ...ended, event_id: '2', detail: '' },
    ]),
  });
  open('/profile');
  const entries = (await screen.findAllByText('Ended sessions')).map((title) => title.closest('li'));
  expect(entries[0]?.textContent).toMatch(/^Ended sessions by a platform admin\d+\s\w+ ago$/);
  expect(entries[1]?.textContent).toMatch(/^Ended sessions\d+\s\w+ ago$/);
});

test('the name is saved over the version that was read', async () => {
  const requests = server({
    'PATCH /api/v1/account': account({ name: 'Ada L.' }),
  });
  const { user } = open('/profile');
  const name = await screen.findByLabelText('Name');
  await user.type(name, ' L.');
  await user.click(screen.getByRole('button', { name: 'Save name' }));
  const sent = await requested(requests, 'PATCH');
  expect(sent?.body).toEqual({ name: 'Ada L.' });
  expect(sent?.headers.get('If-Match')).toBe('"1"');
});

test('a wrong password stands at its field, and what was typed stays', async () => {
  server({
    'PUT /api/v1/account/password': () =>
      problem(400, 'invalid-request', {
        errors: [{ pointer: '/current_password', detail: 'is not your password' }],
      }),
  });
  const { user } = open('/profile');
  await user.type(await screen.findByLabelText('Current password'), 'wrong');
  await user.type(screen.getByLabelText('New password'), 'eight old grey cats');
  await user.click(screen.getByRole('button', { name: 'Change password' }));
  expect(await screen.findByText('is not your password')).toBeDefined();
  expect(screen.getByLabelText('New password')).toHaveProperty('value', 'eight old grey cats');
});

test('another session can be ended, this one not', async () => {
  const requests = server({
    'DELETE /api/v1/sessions/2': () => ({ status: 204 }),
  });
  const { user } = open('/profile');
  await screen.findByText('curl');
  await user.click(screen.getByRole('button', { name: 'End' }));
  await waitFor(() => expect(requests.some(({ path }) => path === '/api/v1/sessions/2')).toBe(true));
});

test('signing out everywhere asks first, and leads to signing in', async () => {
  let out = false;
  server({
    'GET /api/v1/session': () => (out ? problem(401, 'unauthorized') : { json: session() }),
    'DELETE /api/v1/sessions': () => {
      out = true;
      return { status: 204 };
    },
  });
  const { user, router } = open('/profile');
  await screen.findByText('curl');
  await user.click(screen.getByRole('button', { name: 'Sign out everywhere …' }));
  expect(await screen.findByText(/Ends all 2 sessions at once/)).toBeDefined();
  await user.click(screen.getByRole('button', { name: 'Sign out everywhere' }));
  await waitFor(() => expect(router.state.location.pathname).toBe('/sign-in'));
});
