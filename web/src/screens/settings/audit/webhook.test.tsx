import { screen, waitFor, within } from '@testing-library/react';
import { expect, test } from 'vitest';
import type { AuditWebhook } from '~/api/types';
import { fakeServer, page, plan, session, tenant } from '../../../../test/fake';
import { open } from '../../../../test/render';

const acme = '/api/v1/tenants/acme';

const webhook = (more: Partial<AuditWebhook> = {}): AuditWebhook => ({
  url: 'https://siem.example.com/sluice',
  is_active: true,
  version: 3,
  waiting: 0,
  oldest_waiting_at: null,
  skipped: 0,
  failures: 0,
  is_under_way: false,
  next_attempt_at: null,
  attempted_at: '2026-11-21T06:00:00Z',
  succeeded_at: '2026-11-21T06:00:00Z',
  last_status: 204,
  last_error: '',
  test: null,
  ...more,
});

function server(more: Record<string, unknown>, role: 'viewer' | 'owner' = 'owner') {
  return fakeServer({
    'GET /api/v1/session': session(role),
    [`GET ${acme}`]: () => ({ json: tenant({ role }), headers: { ETag: '"1"' } }),
    [`GET ${acme}/plans`]: page([plan('free')]),
    [`GET ${acme}/audit-webhook`]: webhook(),
    ...more,
  });
}

async function card() {
  const title = await screen.findByRole('heading', { name: 'Webhook of the audit log' });
  return within(title.closest('section') as HTMLElement);
}

test('the audit log is sent to a webhook, whose secret is shown once', async () => {
  let made = false;
  const requests = server({
    [`GET ${acme}/audit-webhook`]: () => (made ? { json: webhook() } : { status: 204 }),
    [`POST ${acme}/audit-webhook`]: () => {
      made = true;
      return { status: 201, json: { webhook: webhook(), secret: 'whs_once' } };
    },
  });
  const { user } = open('/t/acme/settings/tenant');
  await user.click(await (await card()).findByRole('button', { name: 'Add webhook' }));
  await user.type(await screen.findByLabelText('URL'), 'https://siem.example.com/sluice');
  await user.click(screen.getByRole('button', { name: 'Create webhook' }));
  expect(await screen.findByText('whs_once')).toBeDefined();
  expect(requests.find(({ method }) => method === 'POST')?.body).toEqual({
    url: 'https://siem.example.com/sluice',
    is_active: true,
  });
  await user.click(screen.getByRole('button', { name: 'Done' }));
  await waitFor(() => expect(screen.queryByText('whs_once')).toBeNull());
  expect(await (await card()).findByText('https://siem.example.com/sluice')).toBeDefined();
});

test('a receiver that is away is shown with what waits, its last answer and what is gone', async () => {
  server({
    [`GET ${acme}/audit-webhook`]: webhook({
      failures: 4,
      waiting: 10_000,
      oldest_waiting_at: '2026-11-20T06:00:00Z',
      last_status: null,
      last_error: 'the receiver did not answer in time',
      next_attempt_at: '2026-11-21T07:00:00Z',
      skipped: 12,
    }),
  });
  open('/t/acme/settings/tenant');
  const shown = await card();
  expect(await shown.findByText('Failing')).toBeDefined();
  expect(shown.getByText(/10,000 changes or more/)).toBeDefined();
  expect(shown.getByText(/the receiver did not answer in time/)).toBeDefined();
  expect(shown.getByText(/^12, because/)).toBeDefined();
});

test('a test is sent, and its result appears', async () => {
  let asked = 0;
  server({
    [`GET ${acme}/audit-webhook`]: () => ({
      json: webhook({
        test: asked ? { is_waiting: false, ended_at: '2026-11-21T06:00:00Z', status: 500, error: '' } : null,
      }),
    }),
    [`POST ${acme}/audit-webhook/test`]: () => {
      asked++;
      return { json: webhook({ test: { is_waiting: true, ended_at: null, status: null, error: '' } }) };
    },
  });
  const { user } = open('/t/acme/settings/tenant');
  await user.click(await (await card()).findByRole('button', { name: 'Send a test' }));
  expect(await (await card()).findByText(/answered 500/)).toBeDefined();
  expect(asked).toBe(1);
});

test('it is edited without its URL, which nobody is shown', async () => {
  const requests = server({
    [`GET ${acme}/audit-webhook`]: webhook({ url: 'https://siem.example.com/…hush' }),
    [`PATCH ${acme}/audit-webhook`]: webhook({ version: 4, is_active: false }),
  });
  const { user } = open('/t/acme/settings/tenant');
  await user.click(await (await card()).findByRole('button', { name: 'Edit' }));
  expect(((await screen.findByLabelText('URL')) as HTMLInputElement).value).toBe('');
  expect(screen.getByText('Now https://siem.example.com/…hush. Leave it empty to keep it')).toBeDefined();
  await user.click(screen.getByRole('switch', { name: /^On/ }));
  await user.click(within(screen.getByRole('dialog')).getByRole('button', { name: 'Save' }));
  await waitFor(() => expect(requests.find(({ method }) => method === 'PATCH')?.body).toEqual({ is_active: false }));
});

test('removing it says what is not sent', async () => {
  const requests = server({
    [`GET ${acme}/audit-webhook`]: webhook({ waiting: 3, is_active: false }),
    [`DELETE ${acme}/audit-webhook`]: () => ({ status: 204 }),
  });
  const { user } = open('/t/acme/settings/tenant');
  await user.click(await (await card()).findByRole('button', { name: 'Remove …' }));
  const dialog = await screen.findByRole('dialog');
  expect(dialog.textContent).toContain('3 changes that wait are not sent');
  await user.click(within(dialog).getByRole('button', { name: 'Remove webhook' }));
  await waitFor(() => expect(requests.find(({ method }) => method === 'DELETE')?.headers.get('If-Match')).toBe('"3"'));
});

test('viewers see where it is sent, and change nothing', async () => {
  server({}, 'viewer');
  open('/t/acme/settings/tenant');
  const shown = await card();
  expect(await shown.findByText('https://siem.example.com/sluice')).toBeDefined();
  expect(shown.queryByRole('button')).toBeNull();
});
