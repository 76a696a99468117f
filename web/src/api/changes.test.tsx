import { screen, waitFor } from '@testing-library/react';
import { expect, test } from 'vitest';
import { fakeServer, page, plan, rule, session } from '../../test/fake';
import { open } from '../../test/render';
import { override, user as someUser } from '../../test/traffic';

const base = '/api/v1/tenants/acme';

test('saving an override refetches the overrides and the user, not the rules nor the usage per month', async () => {
  const requests = fakeServer({
    'GET /api/v1/session': session(),
    [`GET ${base}/rules`]: page([rule({ plan: 'free' })]),
    [`GET ${base}/plans`]: page([plan('free')]),
    [`GET ${base}/users/42`]: () => ({
      json: someUser({ overrides: [override({ rule_id: '13' })] }),
      headers: { ETag: '"0"' },
    }),
    [`GET ${base}/users/42/buckets`]: { items: [], has_more: false },
    [`GET ${base}/users/42/usage`]: { items: [], as_of: '2026-11-26T17:06:12Z' },
    [`PUT ${base}/rules/12/overrides/42`]: () => ({ status: 201, json: override() }),
  });
  const { user, queries } = open('/t/acme/users/42?override=12');
  await user.type(await screen.findByLabelText(/^Reason/), 'ticket');
  const reads = (path: string) => requests.filter((one) => one.method === 'GET' && one.path === path).length;
  const paths = ['rules', 'plans', 'users/42/usage', 'overrides', 'users/42'].map((path) => `${base}/${path}`);
  await waitFor(() => expect(reads(`${base}/users/42/usage`)).toBeGreaterThan(0));
  await waitFor(() => expect(queries.isFetching()).toBe(0));
  const before = paths.map(reads);
  await user.click(screen.getByRole('button', { name: 'Save override' }));
  await waitFor(() => expect(screen.queryByRole('dialog')).toBeNull());
  await waitFor(() => expect(queries.isFetching()).toBe(0));
  const more = paths.map((path, index) => reads(path) - (before[index] ?? 0));
  expect(more.slice(0, 3)).toEqual([0, 0, 0]);
  expect(Math.min(...more.slice(3))).toBeGreaterThan(0);
});
