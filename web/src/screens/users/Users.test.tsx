import { screen, waitFor } from '@testing-library/react';
import { expect, test } from 'vitest';
import { fakeServer, page, plan, problem, session } from '../../../test/fake';
import { open } from '../../../test/render';
import { top } from '../../../test/traffic';

const base = '/api/v1/tenants/acme';

function server(more: Record<string, unknown> = {}) {
  return fakeServer({
    'GET /api/v1/session': session(),
    [`GET ${base}/plans`]: page([plan('free'), plan('pro')]),
    [`GET ${base}/users`]: page([{ user_id: '4200', plan: 'pro', version: 1 }]),
    [`GET ${base}/known-users`]: ({ query }: { query: URLSearchParams }) => ({
      json: { items: query.get('prefix') === '42' ? [{ user_id: '4200', plan: 'pro' }] : [] },
    }),
    [`GET ${base}/stats/top`]: top('user', [{ value: '77', denied: 1234 }]),
    ...more,
  });
}

test('a user is found by how the id begins, and any id can be opened', async () => {
  const asked: (string | null)[] = [];
  server({
    [`GET ${base}/users`]: ({ query }: { query: URLSearchParams }) => {
      asked.push(query.get('prefix'));
      return { json: page([{ user_id: '4200', plan: 'pro', version: 1 }]) };
    },
  });
  const { user, router } = open('/t/acme/users');
  await user.type(await screen.findByLabelText('User id'), '42{Enter}');
  await waitFor(() => expect(asked.at(-1)).toBe('42'));
  expect(router.state.location.search).toEqual({ prefix: '42' });
  const known = await screen.findByRole('link', { name: 'Open user 4200' });
  expect(known.getAttribute('href')).toBe('/t/acme/users/4200');
  const itself = await screen.findByRole('link', { name: 'Open user 42 (not seen recently)' });
  expect(itself.getAttribute('href')).toBe('/t/acme/users/42');
  expect(await screen.findByText('4200')).toBeDefined();
});

test('whoever was limited lately is one press away', async () => {
  server();
  open('/t/acme/users');
  const link = await screen.findByRole('link', { name: '77' });
  expect(link.getAttribute('href')).toBe('/t/acme/users/77');
  expect(link.closest('li')?.textContent).not.toMatch(/at least/);
  expect(screen.getByText('As of 06:00:00 UTC.')).toBeDefined();
});

test('denials that are a lower bound say so', async () => {
  const json = { ...top('user', [{ value: '77', denied: 1234 }]), unattributed: 5 };
  server({ [`GET ${base}/stats/top`]: json });
  open('/t/acme/users');
  const link = await screen.findByRole('link', { name: '77' });
  expect(link.closest('li')?.textContent).toMatch(/at least 1,234 denied$/);
});

test('an import is looked through first, its mistakes beside their lines', async () => {
  const requests = server({
    [`POST ${base}/users/import`]: () =>
      problem(400, 'invalid-request', { errors: [{ pointer: '/lines/3/plan', detail: '"gold" is none' }] }),
  });
  const { user } = open('/t/acme/users');
  await user.click(await screen.findByRole('button', { name: 'Import plans' }));
  await user.click(await screen.findByLabelText('Or paste CSV'));
  await user.paste('user_id,plan\n42,pro\n43,gold\n');
  await user.click(screen.getByRole('button', { name: 'Review changes' }));
  const row = (await screen.findByText('"gold" is none')).closest('tr');
  expect(row?.textContent).toBe('343,gold"gold" is none');
  const sent = requests.find(({ method }) => method === 'POST');
  expect(sent?.headers.get('Content-Type')).toBe('text/csv');
  expect(sent?.body).toBe('user_id,plan\n42,pro\n43,gold\n');
});

test('an import says how many would change, and then changes them', async () => {
  const dry: (string | null)[] = [];
  server({
    [`POST ${base}/users/import`]: ({ query }: { query: URLSearchParams }) => {
      dry.push(query.get('dry_run'));
      return { json: { dry_run: query.get('dry_run') === 'true', lines: 3, changed: 2 } };
    },
  });
  const { user } = open('/t/acme/users');
  await user.click(await screen.findByRole('button', { name: 'Import plans' }));
  await user.click(await screen.findByLabelText('Or paste CSV'));
  await user.paste('user_id,plan\n1,pro\n2,pro\n3,pro\n');
  await user.click(screen.getByRole('button', { name: 'Review changes' }));
  expect(await screen.findByText(/The file lists 3 users. 2 users will change plan/)).toBeDefined();
  await user.click(screen.getByRole('button', { name: 'Change 2 users' }));
  expect(await screen.findByText('2 users changed plan')).toBeDefined();
  expect(dry).toEqual(['true', 'false']);
});

test('a viewer cannot import, and is not offered to', async () => {
  server({ 'GET /api/v1/session': session('viewer'), [`GET ${base}/users`]: page([]) });
  open('/t/acme/users');
  expect(await screen.findByRole('heading', { name: 'All users are on the default plan' })).toBeDefined();
  expect(screen.queryByRole('button', { name: 'Import plans' })).toBeNull();
});

test('the plans of the users that are shown, and the usage of a month, are files', async () => {
  const asked: Record<string, string>[] = [];
  const refuse = ({ path, query }: { path: string; query: URLSearchParams }) => {
    asked.push({ path, ...Object.fromEntries(query) });
    return problem(409, 'conflict', { detail: 'Wait.' });
  };
  server({ [`POST ${base}/users/export`]: refuse, [`POST ${base}/usage/export`]: refuse });
  const { user } = open('/t/acme/users?prefix=42');
  await user.click(await screen.findByRole('button', { name: 'Export plans' }));
  await user.click(screen.getByRole('button', { name: 'By user (CSV)' }));
  expect(screen.getByText(/costs are of allowed checks/)).toBeDefined();
  await user.selectOptions(screen.getByLabelText('Month'), 'The last 13 months');
  await user.click(screen.getByRole('button', { name: 'By rule (CSV)' }));
  const month = new Date().toISOString().slice(0, 7);
  await waitFor(() =>
    expect(asked).toEqual([
      { path: `${base}/users/export`, prefix: '42' },
      { path: `${base}/usage/export`, by: 'user', from: month, to: month },
      { path: `${base}/usage/export`, by: 'rule' },
    ]),
  );
  expect((await screen.findAllByText(/Wait\./)).length).toBeGreaterThan(0);
});
