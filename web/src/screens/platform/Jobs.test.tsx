import { screen, waitFor } from '@testing-library/react';
import { expect, test } from 'vitest';
import { account, fakeServer, page, session } from '../../../test/fake';
import { open } from '../../../test/render';

const admin = { ...session(), account: account({ platform_admin: true }) };
const parked = {
  job_id: '7',
  kind: 'scheduled changes',
  tenant: 'acme',
  about: '12',
  attempts: 12,
  error: 'the database does not answer',
  last_run_at: '2026-11-21T06:00:00Z',
};
const periodic = {
  items: [
    {
      kind: 'seal secrets',
      running: false,
      last_run_at: '2026-11-21T06:00:00Z',
      took_ms: 30,
      next_run_at: '2026-11-21T07:00:00Z',
      failures: 1,
      error: 'no key is configured',
      lag_ms: 0,
    },
  ],
};

test('a parked job says why, and is retried', async () => {
  const requests = fakeServer({
    'GET /api/v1/session': admin,
    'GET /api/v1/parked-jobs': page([parked]),
    'GET /api/v1/periodic-jobs': periodic,
    'POST /api/v1/parked-jobs/7/retry': () => ({ status: 204 }),
  });
  const { user } = open('/platform/jobs');
  expect(await screen.findByText('the database does not answer')).toBeDefined();
  expect(screen.getByText('scheduled changes 12')).toBeDefined();
  expect(await screen.findByText('no key is configured')).toBeDefined();
  await user.click(screen.getByRole('button', { name: 'Try again' }));
  expect(await screen.findByText('The job is due now')).toBeDefined();
  expect(requests.some(({ path }) => path === '/api/v1/parked-jobs/7/retry')).toBe(true);
});

test('a parked job is removed after that was confirmed', async () => {
  let left = [parked];
  const requests = fakeServer({
    'GET /api/v1/session': admin,
    'GET /api/v1/parked-jobs': () => ({ json: page(left) }),
    'GET /api/v1/periodic-jobs': periodic,
    'DELETE /api/v1/parked-jobs/7': () => {
      left = [];
      return { status: 204 };
    },
  });
  const { user } = open('/platform/jobs');
  await user.click(await screen.findByRole('button', { name: 'Remove …' }));
  expect(await screen.findByText(/scheduled changes 12 is not done/)).toBeDefined();
  expect(requests.some(({ method }) => method === 'DELETE')).toBe(false);
  await user.click(screen.getByRole('button', { name: 'Remove job' }));
  expect(await screen.findByText('No job is parked.')).toBeDefined();
  await waitFor(() => expect(requests.filter(({ method }) => method === 'DELETE')).toHaveLength(1));
});

test('who is no platform admin sees no jobs', async () => {
  const requests = fakeServer({ 'GET /api/v1/session': session() });
  open('/platform/jobs');
  expect(await screen.findByText('You do not have permission')).toBeDefined();
  expect(requests.some(({ path }) => path.endsWith('-jobs'))).toBe(false);
});
