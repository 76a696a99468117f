import { screen, waitFor, within } from '@testing-library/react';
import { expect, test } from 'vitest';
import { fakeServer, page, rule } from '../../../test/fake';
import { open } from '../../../test/render';
import { live, world } from '../../../test/rules';
import { verdicts } from '../../../test/traffic';
import { comparisonWords } from './comparison';

const candidate = rule({
  rule_id: '9',
  plan: 'free',
  name: 'candidate',
  mode: 'shadow',
  burst_capacity: 20,
  candidate_for: '1',
  limit_text: '10 per second, bursts to 20',
});

const comparison = {
  live,
  since: '2026-11-21T06:00:00Z',
  until: '2026-11-21T06:02:00Z',
  step_seconds: 60,
  points: [
    { at: '2026-11-21T06:00:00Z', checks: 200, live_denied: 4, candidate_denied: 10 },
    { at: '2026-11-21T06:01:00Z', checks: 200, live_denied: 4, candidate_denied: 10 },
  ],
  live_total: verdicts(392, 8),
  candidate_total: verdicts(380, 20),
  subjects: 12,
  items: [{ subject: '42', live_denied: 3, candidate_denied: 9 }],
  looked_back_to: null,
};

const besides = {
  ...world(),
  'GET /api/v1/tenants/acme/rules': page([live, candidate]),
  'GET /api/v1/tenants/acme/rules/9': () => ({ json: candidate, headers: { ETag: '"1"' } }),
  'GET /api/v1/tenants/acme/rules/9/overrides': page([]),
  'GET /api/v1/tenants/acme/rules/9/comparison': comparison,
};

test('the shadow toggle says that the limit stops, and what was typed can be tried as shadow', async () => {
  const requests = fakeServer({
    ...besides,
    'GET /api/v1/tenants/acme/rules': page([live]),
    'POST /api/v1/tenants/acme/rules/1/candidate': () => ({ status: 201, json: candidate }),
  });
  const { user, router } = open('/t/acme/rules/1');
  await user.click(await screen.findByText('Shadow'));
  expect(screen.getByText(/this rule denies nothing/)).toBeDefined();
  await user.click(screen.getByRole('radio', { name: 'Enforced' }));
  expect(screen.queryByText(/this rule denies nothing/)).toBeNull();
  const burst = screen.getByLabelText('Burst');
  await user.retype(burst, '20');
  await user.click(await screen.findByRole('button', { name: 'Try as shadow' }));
  await waitFor(() => expect(router.state.location.pathname).toBe('/t/acme/rules/9'));
  expect(requests.find(({ method, path }) => method === 'POST' && path.endsWith('/candidate'))?.body).toEqual({
    burst_capacity: 20,
  });
});

test('what the candidate denies is of the checks that passed', () => {
  const data = { ...comparison, live_total: verdicts(62, 123), candidate_total: verdicts(2, 60) };
  expect(comparisonWords(data).replace(/\s/g, ' ')).toBe(
    'The live rule denied 123 of 185 checks (66 %). Of the 62 that passed all rules, the candidate would ' +
      'have denied 60 (97 %).',
  );
});

test('until both rules have a whole minute the page says when their comparison begins', async () => {
  fakeServer({
    ...besides,
    'GET /api/v1/tenants/acme/rules/9/comparison': {
      ...comparison,
      since: '2026-11-21T06:03:00Z',
      points: [],
      live_total: verdicts(0, 0),
      candidate_total: verdicts(0, 0),
      subjects: 0,
      items: [],
    },
  });
  open('/t/acme/rules/9');
  expect(await screen.findByText(/Both are compared from 21 Nov, 06:03 UTC on/)).toBeDefined();
  expect(screen.getByText('Not yet')).toBeDefined();
});

test('a live rule shows its candidate, and offers no second one', async () => {
  fakeServer(besides);
  const { user } = open('/t/acme/rules/1');
  expect(await screen.findByText(/is tried beside this rule/)).toBeDefined();
  expect(await screen.findByText(/the candidate would have denied 20 \(5/)).toBeDefined();
  await user.type(screen.getByLabelText('Burst'), '0');
  expect(await screen.findByRole('button', { name: 'Save' })).toBeDefined();
  expect(screen.queryByRole('button', { name: 'Try as shadow' })).toBeNull();
});

test('a candidate’s page says who differs, and promotes it over the version of the live rule shown', async () => {
  const requests = fakeServer({
    ...besides,
    'POST /api/v1/tenants/acme/rules/9/promote': live,
  });
  const { user, router } = open('/t/acme/rules/9');
  const more = await screen.findByRole('table', { name: 'Denied in addition' });
  expect(within(more).getByRole('row', { name: '42 3 9' })).toBeDefined();
  expect(screen.getByText('And 11 more.')).toBeDefined();
  expect(screen.getByRole('region', { name: 'Effect of promoting it' })).toBeDefined();
  await user.click(await screen.findByRole('button', { name: 'Promote' }));
  const dialog = await screen.findByRole('dialog');
  expect(dialog.textContent).toMatch(/goes from 10 per second, bursts to 50 to 10 per second, bursts to 20/);
  await user.click(within(dialog).getByRole('button', { name: 'Promote' }));
  await waitFor(() => expect(router.state.location.pathname).toBe('/t/acme/rules/1'));
  const sent = requests.find(({ path }) => path.endsWith('/promote'));
  expect(sent?.headers.get('If-Match')).toBe('"1"');
  expect(sent?.body).toEqual({ into_rule_id: '1', into_version: 3 });
});

test('a candidate is discarded', async () => {
  const requests = fakeServer({
    ...besides,
    'DELETE /api/v1/tenants/acme/rules/9': () => ({ status: 204 }),
  });
  const { user, router } = open('/t/acme/rules/9');
  await user.click(await screen.findByRole('button', { name: 'Remove candidate' }));
  const dialog = await screen.findByRole('dialog');
  expect(dialog.textContent).toMatch(/The live rule stays 10 per second, bursts to 50/);
  await user.click(within(dialog).getByRole('button', { name: 'Remove candidate' }));
  await waitFor(() => expect(router.state.location.pathname).toBe('/t/acme/rules/1'));
  expect(requests.some(({ method, path }) => method === 'DELETE' && path.endsWith('/rules/9'))).toBe(true);
});

test('a candidate that denies nothing in addition says so', async () => {
  fakeServer({
    ...besides,
    'GET /api/v1/tenants/acme/rules/9/comparison': {
      ...comparison,
      candidate_total: verdicts(340, 0),
      subjects: 0,
      items: [],
    },
  });
  open('/t/acme/rules/9');
  expect(await screen.findByText(/passed all rules, the candidate would have denied 0 \(0/)).toBeDefined();
});

test('trying as shadow asks for the limit first, and begins with the live one', async () => {
  const requests = fakeServer({
    ...world(),
    'GET /api/v1/tenants/acme/rules': page([live]),
    'POST /api/v1/tenants/acme/rules/1/candidate': () => ({ status: 201, json: candidate }),
  });
  const { user } = open('/t/acme/rules/1');
  await user.click(await screen.findByRole('button', { name: 'Try as shadow' }));
  const dialog = await screen.findByRole('dialog', { name: 'Try a limit as shadow' });
  expect(dialog.textContent).toMatch(/The live rule stays 10 per second, bursts to 50/);
  const burst = within(dialog).getByLabelText('Burst');
  expect((burst as HTMLInputElement).value).toBe('50');
  expect(requests.some(({ path }) => path.endsWith('/candidate'))).toBe(false);
  await user.retype(burst, '20');
  await user.click(within(dialog).getByRole('button', { name: 'Create candidate' }));
  await waitFor(() =>
    expect(requests.find(({ path }) => path.endsWith('/candidate'))?.body).toEqual({ burst_capacity: 20 }),
  );
});

test('a candidate differs from the live rule only in what was typed, also after a save of the live one', async () => {
  let saved = live;
  const requests = fakeServer({
    ...world(),
    'GET /api/v1/tenants/acme/rules': page([live]),
    'GET /api/v1/tenants/acme/rules/1': () => ({ json: saved, headers: { ETag: `"${saved.version}"` } }),
    'POST /api/v1/tenants/acme/rules/1/candidate': () => ({ status: 201, json: candidate }),
  });
  const { user, queries } = open('/t/acme/rules/1');
  await user.click(await screen.findByRole('button', { name: 'Try as shadow' }));
  const dialog = await screen.findByRole('dialog', { name: 'Try a limit as shadow' });
  await user.retype(within(dialog).getByLabelText('Burst'), '20');
  saved = { ...live, version: 4, rate_per_second: 30, description: 'for the sale' };
  await queries.invalidateQueries();
  await waitFor(() => expect(dialog.textContent).toMatch(/The live rule stays 30 per second, bursts to 50/));
  expect(within(dialog).getByLabelText('Rate')).toHaveProperty('value', '30');
  await user.click(within(dialog).getByRole('button', { name: 'Create candidate' }));
  await waitFor(() =>
    expect(requests.find(({ path }) => path.endsWith('/candidate'))?.body).toEqual({ burst_capacity: 20 }),
  );
});
