import { screen, waitFor, within } from '@testing-library/react';
import { expect, test } from 'vitest';
import { explanation, matched } from '../../../test/explain';
import { fakeServer, page, plan, problem, session } from '../../../test/fake';
import { open } from '../../../test/render';

const explain = 'POST /api/v1/tenants/acme/explain';
const server = (answer: unknown, role: 'viewer' | 'owner' = 'owner') =>
  fakeServer({
    'GET /api/v1/session': session(role),
    'GET /api/v1/tenants/acme/plans': page([plan('free'), plan('pro')]),
    [explain]: answer,
  });

test('the first visit teaches, and its example asks', async () => {
  const requests = server(explanation());
  const { user, router } = open('/t/acme/try');
  await user.click(await screen.findByRole('button', { name: 'Fill in an example' }));
  expect(await screen.findByRole('heading', { name: 'Allowed' })).toBeDefined();
  expect(router.state.location.search).toEqual({
    user: '42',
    endpoint: '/api/reports',
    method: 'GET',
    ip: '203.0.113.9',
  });
  expect(requests.find(({ path }) => path.endsWith('/explain'))?.body).toEqual({
    user_id: '42',
    endpoint: '/api/reports',
    method: 'GET',
    ip: '203.0.113.9',
  });
});

test('what is typed is asked, attributes and cost too', async () => {
  const requests = server(explanation());
  const { user } = open('/t/acme/try');
  await user.type(await screen.findByLabelText('User'), '7');
  await user.type(screen.getByLabelText('Cost'), '2.5');
  await user.click(screen.getByRole('button', { name: 'Add attribute' }));
  await user.type(screen.getByLabelText('Attribute 1: name'), 'org');
  await user.type(screen.getByLabelText('Attribute 1: value'), 'acme');
  await user.click(screen.getByRole('button', { name: 'Run check' }));
  await screen.findByRole('heading', { name: 'Allowed' });
  const sent = requests.find(({ path }) => path.endsWith('/explain'));
  expect(sent?.body).toEqual({ user_id: '7', cost: 2.5, attributes: { org: 'acme' } });
});

test('costs of other meters are asked, and a meter that nothing counts is said', async () => {
  const requests = server({ ...explanation(), unmatched_meters: ['gpu_seconds'] });
  const { user } = open('/t/acme/try');
  await user.click(await screen.findByRole('button', { name: 'Add cost' }));
  await user.type(screen.getByLabelText('Meter 1: name'), 'gpu_seconds');
  await user.type(screen.getByLabelText('Meter 1: value'), 'many');
  await user.click(screen.getByRole('button', { name: 'Run check' }));
  expect(screen.getByText(/must be a number from 0/)).toBeDefined();
  expect(requests.some(({ path }) => path.endsWith('/explain'))).toBe(false);
  await user.retype(screen.getByLabelText('Meter 1: value'), '12');
  await user.click(screen.getByRole('button', { name: 'Run check' }));
  expect(await screen.findByText('No matching rule counts gpu_seconds')).toBeDefined();
  expect(requests.find(({ path }) => path.endsWith('/explain'))?.body).toEqual({ costs: { gpu_seconds: 12 } });
  expect(screen.getByLabelText<HTMLInputElement>('Meter 1: name').value).toBe('gpu_seconds');
});

test('a denial names the rule that decides, and why others did not match', async () => {
  server(
    explanation(
      {
        allowed: false,
        violated_rule: 'user:{user_id}',
        violated_rule_id: 12,
        reason: 'limit_exceeded',
        retry_after_ms: 35,
        remaining: 0,
      },
      [matched(3, { key_pattern: 'global' }), matched(12), matched(13, { mode: 'shadow', name: 'half' })],
      [
        {
          rule_id: 4,
          name: '',
          scope: 'ip',
          key_pattern: 'ip:{ip}',
          mode: 'enforce',
          plan: null,
          reason: 'needs an ip, the check has none',
        },
      ],
    ),
  );
  open('/t/acme/try?user=42');
  expect(await screen.findByText(/user:\{user_id\} has too few tokens/)).toBeDefined();
  const rows = within(screen.getByRole('table', { name: 'Matched rules' })).getAllByRole('row');
  expect(rows.map((row) => row.textContent)).toEqual([
    expect.stringContaining('Rule and limit'),
    expect.stringMatching(/All requests.*allows/),
    expect.stringMatching(/Each user.*10 per second, bursts to 50.*decides: denies for 35\u202fms/),
    expect.stringMatching(/half.*would allow/),
  ]);
  expect(screen.getByText('needs an ip, the check has none')).toBeDefined();
});

test('what the server does not like stands at its field', async () => {
  server(() =>
    problem(400, 'invalid-request', {
      errors: [{ pointer: '/ip', detail: 'must be an IP address, got "x"' }],
    }),
  );
  open('/t/acme/try?ip=x');
  const field = await screen.findByLabelText('IP address');
  await waitFor(() => expect(field.getAttribute('aria-invalid')).toBe('true'));
  expect(screen.getByText('must be an IP address, got "x"')).toBeDefined();
});

test('a cost that is none is not asked', async () => {
  const requests = server(explanation());
  const { user } = open('/t/acme/try');
  await user.type(await screen.findByLabelText('Cost'), 'many');
  await user.click(screen.getByRole('button', { name: 'Run check' }));
  expect(screen.getByText(/must be a number from 0/)).toBeDefined();
  expect(requests.some(({ path }) => path.endsWith('/explain'))).toBe(false);
});

test('a viewer asks too, and copies the check in each language', async () => {
  server(explanation(), 'viewer');
  const { user } = open('/t/acme/try?user=42');
  expect((await screen.findByRole('region', { name: 'curl' })).textContent).toContain('"user_id":"42"');
  await user.click(screen.getByRole('radio', { name: 'Python' }));
  expect(screen.getByRole('region', { name: 'Python' }).textContent).toContain('Check(user_id="42")');
});
