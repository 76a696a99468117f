import { screen, waitFor, within } from '@testing-library/react';
import { expect, test } from 'vitest';
import { account, capacity, fakeServer, key, page, plan, problem, session, tenant } from '../../../../test/fake';
import { open } from '../../../../test/render';

const acme = '/api/v1/tenants/acme';

function server(more: Record<string, unknown>) {
  return fakeServer({
    'GET /api/v1/session': session('owner'),
    [`GET ${acme}`]: () => ({ json: tenant({ role: 'owner' }), headers: { ETag: '"1"' } }),
    [`GET ${acme}/plans`]: page([plan('free')]),
    [`GET ${acme}/audit-webhook`]: () => ({ status: 204 }),
    [`GET ${acme}/api-keys`]: page([key()]),
    ...more,
  });
}

test('a platform admin sees what the tenant holds and changes capacity; a mistake stands at its field', async () => {
  let attempts = 0;
  const requests = server({
    'GET /api/v1/session': { ...session(), account: account({ platform_admin: true }) },
    [`GET ${acme}/capacity`]: () => ({
      json: capacity({ rules: { held: 12_000, allowed: 10_000 }, alerts: { held: 3, allowed: 500 } }),
      headers: { ETag: '"4"' },
    }),
    [`PUT ${acme}/capacity`]: () =>
      attempts++ === 0
        ? problem(400, 'invalid-request', {
            errors: [{ pointer: '/rules', detail: 'must be 0 to 1000000000' }],
          })
        : { json: capacity(), headers: { ETag: '"5"' } },
  });
  const { user } = open('/t/acme/settings/tenant');
  expect((await screen.findByText('12,000 of 10,000')).textContent).toContain('full');
  expect(screen.getByText('3 of 500').textContent).toContain('default 100');
  await user.click(screen.getByRole('button', { name: 'Edit capacity' }));
  const dialog = await screen.findByRole('dialog');
  expect(within(dialog).getByLabelText<HTMLInputElement>('Alerts').value).toBe('500');
  await user.clear(within(dialog).getByLabelText('Alerts')); // back to the default
  await user.type(within(dialog).getByLabelText('Rules'), '20000');
  await user.click(within(dialog).getByRole('button', { name: 'Save capacity' }));
  await within(dialog).findByText('must be 0 to 1000000000');
  await user.click(within(dialog).getByRole('button', { name: 'Save capacity' }));
  await waitFor(() => expect(screen.queryByRole('dialog')).toBeNull());
  const sent = requests.filter(({ method }) => method === 'PUT');
  expect(sent.map(({ body }) => body)).toEqual([{ rules: 20_000 }, { rules: 20_000 }]);
  expect(sent[0]?.headers.get('If-Match')).toBe('"4"');
});

test('an owner sees the capacity and cannot change it; who creates a key is told that there is no room', async () => {
  server({
    [`GET ${acme}/capacity`]: () => ({
      json: capacity({ api_keys: { held: 1000, allowed: 1000 } }),
      headers: { ETag: '"0"' },
    }),
  });
  const { user } = open('/t/acme/settings/tenant');
  expect(await screen.findByText('1,000 of 1,000')).toBeDefined();
  expect(screen.queryByRole('button', { name: 'Edit capacity' })).toBeNull();
  await user.click(screen.getByRole('link', { name: 'API keys' }));
  await user.click(await screen.findByRole('button', { name: 'Create key' }));
  const dialog = await screen.findByRole('dialog');
  expect((await within(dialog).findByRole('alert')).textContent).toContain('holds 1,000 API keys and may hold 1,000');
});
