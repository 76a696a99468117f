import { screen, waitFor } from '@testing-library/react';
import { expect, test } from 'vitest';
import { account, fakeServer, page, session } from '../../../test/fake';
import { open } from '../../../test/render';

const admin = { ...session(), account: account({ platform_admin: true }) };
const message = {
  mail_id: '7',
  kind: 'invitation',
  to: 'grace@example.com',
  tenant_id: '1',
  state: 'failed',
  attempts: 1,
  error: 'the mailbox does not exist',
  created_at: '2026-11-21T06:00:00Z',
  attempted_at: '2026-11-21T06:00:01Z',
  next_attempt_at: null,
};

test('mail that did not go says why, and a test message can be sent', async () => {
  const requests = fakeServer({
    'GET /api/v1/session': admin,
    'GET /api/v1/sign-in': { mail: true, passwords: true, providers: [] },
    'GET /api/v1/mail': page([message]),
    'POST /api/v1/mail/test': () => ({
      status: 201,
      json: {
        ...message,
        mail_id: '8',
        kind: 'test',
        state: 'queued',
        error: '',
        attempts: 0,
        tenant_id: null,
      },
    }),
  });
  const { user } = open('/platform/mail');
  expect(await screen.findByText('the mailbox does not exist')).toBeDefined();
  expect(screen.getByText('Not sent')).toBeDefined();
  await user.click(screen.getByRole('button', { name: 'Send me a test message' }));
  await waitFor(() => expect(requests.some(({ path }) => path === '/api/v1/mail/test')).toBe(true));
});

test('without a mail server the page says how to configure one', async () => {
  fakeServer({ 'GET /api/v1/session': admin, 'GET /api/v1/mail': page([]) });
  open('/platform/mail');
  expect(await screen.findByText(/SLUICE_SMTP_ADDR/)).toBeDefined();
});
