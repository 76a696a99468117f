import { screen, waitFor, within } from '@testing-library/react';
import { expect, test } from 'vitest';
import type { Tenant } from '~/api/types';
import { account, auditEntry, fakeServer, page, problem, session, tenant } from '../../test/fake';
import { open } from '../../test/render';
import { summary, verdicts } from '../../test/traffic';

const acme = '/api/v1/tenants/acme';
const object = { kind: 'tenant', id: 'acme' } as const;

function server(enforcement: 'on' | 'shadow', role: 'viewer' | 'owner' = 'owner') {
  let now = tenant({ enforcement, role, version: 7 });
  return fakeServer({
    'GET /api/v1/session': session(role),
    [`GET ${acme}`]: () => ({ json: now, headers: { ETag: `"${now.version}"` } }),
    [`PATCH ${acme}`]: ({ body }: { body: unknown }) => {
      const { settings, ...rest } = body as Partial<Tenant>;
      now = { ...now, ...rest, settings: { ...now.settings, ...settings }, version: now.version + 1 };
      return { json: now };
    },
    [`GET ${acme}/audit-webhook`]: () => problem(404, 'not-found'),
    [`GET ${acme}/audit`]: page([
      auditEntry({
        object,
        before: { name: 'A', enforcement: 'shadow' },
        after: { name: 'B', enforcement: 'shadow' },
      }),
      auditEntry({
        object,
        actor: { kind: 'account', id: '2', name: 'grace@example.com', act: '', request_id: '' },
        before: { enforcement: 'on' },
        after: { enforcement: 'shadow' },
      }),
    ]),
    [`GET ${acme}/plans`]: page([]),
    [`GET ${acme}/stats/summary`]: summary(verdicts(90, 10)),
  });
}

test('a tenant in shadow says so on every screen, and who did it, and can be enforced again from there', async () => {
  const requests = server('shadow');
  const { user } = open('/t/acme/try');
  const banner = await screen.findByRole('region', { name: 'Enforcement' });
  expect(banner.textContent).toMatch(/Acme is in shadow: nothing is denied/);
  expect(await within(banner).findByText(/by grace@example.com/)).toBeDefined();
  expect(screen.getByRole('button', { name: /^Tenant: Acme In shadow/ })).toBeDefined();
  await user.click(within(banner).getByRole('button', { name: 'Enforce again …' }));
  expect(await screen.findByText(/Buckets keep their level/)).toBeDefined();
  expect(requests.some(({ method }) => method === 'PATCH')).toBe(false);
  await user.click(screen.getByRole('button', { name: 'Enforce again' }));
  await waitFor(() => expect(screen.queryByRole('region', { name: 'Enforcement' })).toBeNull());
  const sent = requests.find(({ method }) => method === 'PATCH');
  expect(sent?.body).toEqual({ enforcement: 'on' });
  expect(sent?.headers.get('If-Match')).toBe('"7"');
});

test('a viewer sees that the tenant is in shadow, and no button', async () => {
  server('shadow', 'viewer');
  open('/t/acme/try');
  const banner = await screen.findByRole('region', { name: 'Enforcement' });
  expect(within(banner).queryByRole('button')).toBeNull();
});

test('the settings put a tenant in shadow after saying what that does', async () => {
  const requests = server('on');
  const { user } = open('/t/acme/settings/tenant');
  await user.click(await screen.findByRole('button', { name: 'Put in shadow …' }));
  expect(await screen.findByText(/In the last hour 10 of 100 checks were denied/)).toBeDefined();
  await user.click(screen.getByRole('button', { name: 'Put in shadow' }));
  expect(await screen.findByRole('region', { name: 'Enforcement' })).toBeDefined();
  expect(requests.find(({ method }) => method === 'PATCH')?.body).toEqual({ enforcement: 'shadow' });

  // Nothing that the open settings show has changed.
  const name = screen.getByLabelText('Name');
  await user.clear(name);
  await user.type(name, 'Acme 2');
  await user.click(screen.getByRole('button', { name: 'Save' }));
  await waitFor(() => expect(requests.filter(({ method }) => method === 'PATCH')).toHaveLength(2));
  expect(requests.findLast(({ method }) => method === 'PATCH')?.headers.get('If-Match')).toBe('"8"');
});

test('the list of tenants marks those in shadow', async () => {
  fakeServer({
    'GET /api/v1/session': { ...session(), account: account({ platform_admin: true }) },
    'GET /api/v1/tenants': page([tenant({ enforcement: 'shadow' })]),
    'GET /api/v1/removed-tenants': page([]),
  });
  open('/platform');
  const table = await screen.findByRole('table', { name: 'Tenants' });
  expect(within(table).getByText('In shadow')).toBeDefined();
});
