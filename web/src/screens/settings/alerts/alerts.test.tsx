import { screen, waitFor, within } from '@testing-library/react';
import { expect, test, vi } from 'vitest';
import { page, problem, rule } from '../../../../test/fake';
import { open } from '../../../../test/render';
import { acme, loud, preview, server } from '../../../../test/settings';

test('the first alert is made, and its secret shown once', async () => {
  const requests = server({
    [`POST ${acme}/alerts`]: () => ({ status: 201, json: { alert: loud, secret: 'slw_secret' } }),
  });
  const { user } = open('/t/acme/settings/alerts');
  await user.click(await screen.findByRole('button', { name: 'New alert' }));
  await user.type(await screen.findByLabelText('Name'), 'Search');
  await user.click(screen.getByRole('combobox', { name: 'Rule' }));
  await user.click(await screen.findByRole('option', { name: /^Each user ·/ }));
  await user.type(screen.getByLabelText('Webhook'), 'https://hooks.example.com/');
  await user.click(screen.getByRole('button', { name: 'Create alert' }));
  expect(await screen.findByText('slw_secret')).toBeDefined();
  const shown = screen.getByRole('region', { name: 'Check a webhook in Node.js' }).textContent;
  expect(shown).toContain("update(t + '.').update(body)");
  expect(document.body.textContent).toContain('Sluice-Signature: t=…,v1=…');
  expect(document.body.textContent).not.toContain('X-Sluice');
  expect(requests.find(({ method, path }) => method === 'POST' && path.endsWith('/alerts'))?.body).toEqual({
    name: 'Search',
    kind: 'denials',
    rule_id: '12',
    per: 'rule',
    threshold: 1000,
    window_minutes: 5,
    format: 'webhook',
    url: 'https://hooks.example.com/',
    is_active: true,
  });
});

test('an alert that fires meanwhile says so within seconds', async () => {
  vi.useFakeTimers({ shouldAdvanceTime: true });
  let raised_at: string | null = null;
  server({ [`GET ${acme}/alerts`]: () => ({ json: page([{ ...loud, raised_at }]) }) });
  open('/t/acme/settings/alerts');
  expect(await screen.findByText('Never')).toBeDefined();
  raised_at = new Date().toISOString();
  await vi.advanceTimersByTimeAsync(5_000);
  await waitFor(() => expect(screen.queryByText('Never')).toBeNull());
  vi.useRealTimers();
});

const waiting = {
  delivery_id: '90',
  is_test: false,
  kind: 'denials',
  rule_id: '12',
  subject: null,
  denied: 1043,
  since: '2026-11-21T06:00:00Z',
  raised_at: '2026-11-21T06:00:00Z',
  state: 'pending',
  attempts: 1,
  last_status: 503,
  last_error: '',
  attempted_at: '2026-11-21T06:00:00Z',
  next_attempt_at: '2026-11-21T06:30:00Z',
  is_under_way: false,
};

test.each([
  ['2026-11-21T05:47:00Z', 1, 'It would have fired 1 time since 21 Nov, 05:47 UTC, when counts begin:'],
  ['2026-11-14T06:30:00Z', 1, 'It would have fired 1 time in the last 7 days:'],
  ['2026-11-21T05:47:00Z', 0, 'It would not have fired since 21 Nov, 05:47 UTC, when counts begin.'],
  [null, 0, 'It would not have fired: no check was counted in the last 7 days.'],
])('a preview of counts since %s says since when there are any', async (counted_since, fired, words) => {
  const firings = [{ at: '2026-11-21T05:47:00Z', rule_id: '12', subject: null, count: 40 }].slice(1 - fired);
  server({
    [`POST ${acme}/alerts/preview`]: preview({ counted_since, fired, firings }),
  });
  const { user } = open('/t/acme/settings/alerts');
  await user.click(await screen.findByRole('button', { name: 'New alert' }));
  await user.click(await screen.findByRole('combobox', { name: 'Rule' }));
  await user.click(await screen.findByRole('option', { name: 'Any rule' }));
  const shownPreview = await screen.findByRole('region', { name: 'Preview' });
  expect(within(shownPreview).getByRole('status').textContent).toBe(words);
  // Not before the rule's first check: it was raised in the course of its minute.
  const [time] = shownPreview.querySelectorAll('time');
  expect(time?.getAttribute('datetime')).toBe(fired ? '2026-11-21T05:48:00.000Z' : undefined);
});

test('an alert of any rule shows when it would have fired, and is sent to Slack', async () => {
  const requests = server({
    [`POST ${acme}/alerts/preview`]: preview({
      fired: 7,
      firings: [{ at: '2026-11-20T06:00:00Z', rule_id: '12', subject: null, count: 40 }],
    }),
    [`POST ${acme}/alerts`]: () => ({
      status: 201,
      json: { alert: { ...loud, format: 'slack' }, secret: null },
    }),
  });
  const { user } = open('/t/acme/settings/alerts');
  await user.click(await screen.findByRole('button', { name: 'New alert' }));
  await user.type(await screen.findByLabelText('Name'), 'Nearly full');
  await user.selectOptions(screen.getByLabelText('When'), 'near_limit');
  expect(screen.queryByLabelText('Count')).toBeNull();
  await user.click(screen.getByRole('combobox', { name: 'Rule' }));
  await user.click(await screen.findByRole('option', { name: 'Any rule' }));
  const shownPreview = await screen.findByRole('region', { name: 'Preview' });
  expect(shownPreview.textContent).toContain('It would have fired 7 times in the last 7 days');
  expect(shownPreview.textContent).toMatch(/40 % by .*Each user/);
  expect(shownPreview.textContent).toContain('and 2 times before');
  await user.selectOptions(screen.getByLabelText('Send to'), 'slack');
  await user.type(screen.getByLabelText('Slack webhook'), 'https://hooks.slack.com/services/x');
  await user.click(screen.getByRole('button', { name: 'Create alert' }));
  await waitFor(() => expect(screen.queryByLabelText('Name')).toBeNull());
  const condition = { kind: 'near_limit', rule_id: null, per: 'rule', threshold: 50, window_minutes: 5 };
  const sent = (end: string) => requests.filter(({ method, path }) => method === 'POST' && path.endsWith(end));
  expect(sent('/preview').at(-1)?.body).toEqual(condition);
  expect(sent('/alerts').at(-1)?.body).toEqual({
    name: 'Nearly full',
    ...condition,
    format: 'slack',
    url: 'https://hooks.slack.com/services/x',
    is_active: true,
  });
});

test('a silence that is over silences nothing', async () => {
  const silence = { until: new Date(Date.now() - 60_000).toISOString(), by: 'ada@example.com', reason: 'Load test' };
  server({
    [`GET ${acme}/alerts`]: page([{ ...loud, silence }]),
    [`GET ${acme}/alerts/4/deliveries`]: page([]),
  });
  open('/t/acme/settings/alerts?entry=4');
  expect(await screen.findByRole('button', { name: 'Silence …' })).toBeDefined();
  expect(screen.queryByText(/Silenced|Load test/)).toBeNull();
});

test('an alert is silenced for a time, which says by whom and why', async () => {
  let alert: object = loud;
  const requests = server({
    [`GET ${acme}/alerts`]: () => ({ json: page([alert]) }),
    [`GET ${acme}/alerts/4/deliveries`]: page([{ ...waiting, state: 'silenced', next_attempt_at: null }]),
    [`PUT ${acme}/alerts/4/silence`]: () => {
      alert = {
        ...loud,
        silence: { until: '2030-01-01T00:00:00Z', by: 'ada@example.com', reason: 'Load test' },
      };
      return { json: alert };
    },
    [`DELETE ${acme}/alerts/4/silence`]: () => {
      alert = loud;
      return { json: alert };
    },
  });
  const { user } = open('/t/acme/settings/alerts?entry=4');
  await user.click(await screen.findByRole('button', { name: 'Silence …' }));
  await user.selectOptions(await screen.findByLabelText('Duration'), '4 hours');
  expect(screen.getByText(/^Ends \d+ \w+, \d\d:\d\d /)).toBeDefined();
  await user.type(screen.getByLabelText('Reason'), 'Load test');
  const before = Date.now();
  await user.click(screen.getByRole('button', { name: 'Silence' }));
  expect(await screen.findByText(/by ada@example.com: Load test/)).toBeDefined();
  const row = within(screen.getByRole('table', { name: 'Alerts' }))
    .getByText('Silenced')
    .closest('td');
  expect(row?.textContent).toMatch(/ends in \d+/);
  const body = requests.find(({ method }) => method === 'PUT')?.body as { until: string; reason: string };
  expect(body.reason).toBe('Load test');
  expect(Math.abs(Date.parse(body.until) - before - 4 * 3_600_000)).toBeLessThan(60_000);
  await user.click(screen.getByRole('button', { name: 'End silence' }));
  expect(await screen.findByRole('button', { name: 'Silence …' })).toBeDefined();
});

test('a webhook inside the network is refused at its field', async () => {
  const detail = 'must lead to a public address';
  const wrong = problem(400, 'invalid-request', { errors: [{ pointer: '/url', detail }] });
  server({
    [`GET ${acme}/alerts`]: page([loud]),
    [`GET ${acme}/alerts/4/deliveries`]: page([]),
    [`PATCH ${acme}/alerts/4`]: () => wrong,
  });
  const { user } = open('/t/acme/settings/alerts?entry=4');
  await user.click(await screen.findByRole('button', { name: 'Edit' }));
  await user.click(await screen.findByRole('button', { name: 'Save' }));
  await waitFor(() => expect(screen.getByLabelText('Webhook').getAttribute('aria-invalid')).toBe('true'));
  expect(screen.getByText(new RegExp(detail, 'i'))).toBeDefined();
});

test('an alert is edited without its URL, which nobody is shown', async () => {
  const requests = server({
    [`GET ${acme}/alerts`]: page([{ ...loud, url: 'https://hooks.example.com/…hush' }]),
    [`GET ${acme}/alerts/4/deliveries`]: page([]),
    [`PATCH ${acme}/alerts/4`]: { ...loud, version: 2 },
  });
  const { user } = open('/t/acme/settings/alerts?entry=4');
  await user.click(await screen.findByRole('button', { name: 'Edit' }));
  const field = (await screen.findByLabelText('Webhook')) as HTMLInputElement;
  expect(field.value).toBe('');
  expect(screen.getByText('Now https://hooks.example.com/…hush. Leave it empty to keep it')).toBeDefined();
  await user.click(screen.getByRole('button', { name: 'Save' }));
  const sent = () => requests.filter(({ method }) => method === 'PATCH').map(({ body }) => body);
  await waitFor(() => expect(sent()).toHaveLength(1));
  expect(sent()[0]).not.toHaveProperty('url');
  await user.click(await screen.findByRole('button', { name: 'Edit' }));
  await user.type(await screen.findByLabelText('Webhook'), 'https://hooks.example.com/next');
  await user.click(screen.getByRole('button', { name: 'Save' }));
  await waitFor(() => expect(sent()[1]).toHaveProperty('url', 'https://hooks.example.com/next'));
});

test('a lost race over an alert asks about the field that both changed, and keeps what only they changed', async () => {
  const tags: (string | null)[] = [];
  const theirs = { ...loud, name: 'Quiet', threshold: 5000, version: 2 };
  const requests = server({
    [`GET ${acme}/alerts`]: page([loud]),
    [`GET ${acme}/alerts/4`]: theirs,
    [`GET ${acme}/alerts/4/deliveries`]: page([]),
    [`PATCH ${acme}/alerts/4`]: ({ headers }: { headers: Headers }) => {
      tags.push(headers.get('If-Match'));
      return tags.length > 1 ? { json: { ...loud, version: 3 } } : problem(412, 'precondition-failed');
    },
  });
  const { user } = open('/t/acme/settings/alerts?entry=4');
  await user.click(await screen.findByRole('button', { name: 'Edit' }));
  const name = await screen.findByLabelText('Name');
  await user.retype(name, 'Louder');
  await user.click(screen.getByRole('button', { name: 'Save' }));
  const dialog = await screen.findByRole('dialog', { name: /Someone changed this alert/ });
  expect(within(dialog).getByRole('row', { name: 'Name Quiet Louder' })).toBeDefined();
  expect(within(dialog).queryByRole('row', { name: /Threshold/ })).toBeNull();
  await user.click(within(dialog).getByRole('button', { name: 'Overwrite with mine' }));
  await waitFor(() => expect(tags).toEqual(['"1"', '"2"']));
  const sent = requests.filter(({ method }) => method === 'PATCH').at(-1)?.body;
  expect(sent).toMatchObject({ name: 'Louder', threshold: 5000 });
  await waitFor(() => expect(screen.queryByLabelText('Name')).toBeNull());
});

test('a webhook that waits for its retry is sent again by a press', async () => {
  let delivery = waiting as object;
  const requests = server({
    [`GET ${acme}/alerts`]: page([loud]),
    [`GET ${acme}/alerts/4/deliveries`]: () => ({ json: page([delivery]) }),
    [`POST ${acme}/alerts/4/deliveries/90/retry`]: () => {
      delivery = { ...waiting, next_attempt_at: null, is_under_way: true };
      return { json: delivery };
    },
  });
  const { user } = open('/t/acme/settings/alerts?entry=4');
  await user.click(await screen.findByRole('button', { name: 'Retry now' }));
  expect(await screen.findByText('Sending')).toBeDefined();
  expect(screen.queryByRole('button', { name: 'Retry now' })).toBeNull();
  expect(requests.filter(({ method }) => method === 'POST')).toHaveLength(1);
});

test('an alert says that it is off because its rule was removed', async () => {
  server({
    [`GET ${acme}/alerts`]: page([{ ...loud, is_active: false, rule_removed: true }]),
    [`GET ${acme}/alerts/4/deliveries`]: page([]),
  });
  open('/t/acme/settings/alerts?entry=4');
  expect(await screen.findByText(/Its rule was removed, which turned the alert off/)).toBeDefined();
});

test('an alert’s threshold suits its rule, and it names its plan and is silenced from the list', async () => {
  const requests = server({
    [`GET ${acme}/rules`]: page([
      rule({ plan: 'pro', rate_per_second: 0.1, burst_capacity: 3 }),
      rule({ rule_id: '13', key_pattern: 'ip:{ip}', rate_per_second: 0.01, burst_capacity: 3 }),
    ]),
    [`GET ${acme}/alerts`]: page([loud]),
    [`PUT ${acme}/alerts/4/silence`]: () => ({ json: loud }),
    [`POST ${acme}/alerts/preview`]: {
      since: '2026-11-14T06:00:00Z',
      until: '2026-11-21T06:00:00Z',
      counted_since: '2026-11-14T06:01:00Z',
      looked_back_to: null,
      fired: 0,
      firings: [],
    },
  });
  const { user } = open('/t/acme/settings/alerts');
  expect(await screen.findByText('1,000 denials by “Each user · pro” within 5 minutes')).toBeDefined();
  await user.click(screen.getByRole('button', { name: 'Silence Loud' }));
  const silence = await screen.findByRole('dialog', { name: 'Silence Loud' });
  await user.click(within(silence).getByRole('button', { name: 'Silence' }));
  await waitFor(() => expect(requests.some(({ method }) => method === 'PUT')).toBe(true));
  await waitFor(() => expect(screen.queryByRole('dialog')).toBeNull());

  await user.click(screen.getByRole('button', { name: 'New alert' }));
  expect(await screen.findByLabelText('Denials')).toHaveProperty('value', '1,000');
  await user.click(screen.getByRole('combobox', { name: 'Rule' }));
  await user.click(await screen.findByRole('option', { name: /^Each user ·/ }));
  expect(screen.getByLabelText('Denials')).toHaveProperty('value', '30');
  expect(screen.getByText('As many as the rule allows one bucket in 5 minutes')).toBeDefined();
  await user.click(screen.getByRole('combobox', { name: 'Rule' }));
  await user.click(await screen.findByRole('option', { name: /Each IP address/ }));
  expect(screen.getByLabelText('Denials')).toHaveProperty('value', '10');
  expect(screen.queryByText('As many as the rule allows one bucket in 5 minutes')).toBeNull();
});
