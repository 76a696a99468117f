import { QueryClient } from '@tanstack/react-query';
import { screen, waitFor, within } from '@testing-library/react';
import { expect, test } from 'vitest';
import { limitExceeded } from '~/api/problem';
import { seriesQuery } from '~/api/traffic';
import { exactTime } from '~/domain/format';
import { namedSpan } from '~/domain/range';
import { auditEntry, effect, fakeServer, page, plan, problem, requested, rule, session } from '../../../test/fake';
import { open } from '../../../test/render';
import {
  detailed,
  present,
  readyExport,
  scheduledChange,
  series,
  top,
  verdicts,
  violation,
  violationSeries,
} from '../../../test/traffic';

const base = '/api/v1/tenants/acme';
type Asked = { query: URLSearchParams };

function list(items = [violation()], more = {}) {
  return { items, next_cursor: null, scanned_until: null, ...more };
}

function server(more: Record<string, unknown> = {}) {
  return fakeServer({
    'GET /api/v1/session': session(),
    [`GET ${base}/rules`]: page([rule()]),
    [`GET ${base}/plans`]: page([plan('free')]),
    [`GET ${base}/stats/series`]: series([verdicts(10, 11)]),
    [`GET ${base}/stats/violations`]: violationSeries([11]),
    [`GET ${base}/violations`]: list(),
    ...more,
  });
}

function asking(path: string, answer: () => unknown): URLSearchParams[] {
  const asked: URLSearchParams[] = [];
  server({
    [`GET ${base}/${path}`]: ({ query }: Asked) => {
      asked.push(query);
      return { json: answer() };
    },
  });
  return asked;
}

const beside = [violation({ violation_id: 'other', endpoint: '/api/reports' })];
const oneOf = (more: Parameters<typeof detailed>[1] = {}) =>
  detailed(violation(), { rule: rule({ plan: 'free' }), denied_in_minute: 61, beside, ...more });

const { rule_id, key_pattern, name, plan: onPlan, meter, scope, mode } = rule({ rule_id: '12' });
const named = { rule_id, key_pattern, name, plan: onPlan, meter, scope, mode, removed: false };

test('filters come from the address and go there', async () => {
  const asked = asking('violations', () => list());
  const { user, router } = open('/t/acme/violations?user=42&mode=enforce');
  await screen.findByRole('table', { name: 'Violations' });
  expect(asked[0]?.get('user_id')).toBe('42');
  expect(asked[0]?.get('mode')).toBe('enforce');
  await user.type(screen.getByLabelText('Endpoint'), '/api/*{Enter}');
  await waitFor(() => expect(asked.at(-1)?.get('endpoint')).toBe('/api/*'));
  expect(router.state.location.search).toEqual({ user: '42', mode: 'enforce', endpoint: '/api/*' });
  await user.click(screen.getByRole('button', { name: 'Clear' }));
  await waitFor(() => expect(router.state.location.search).toEqual({}));
  expect(screen.getByLabelText('User')).toHaveProperty('value', '');
});

test('rows of another filter are marked as old for as long as they are there', async () => {
  const of = (who: string) => violation({ violation_id: who, user_id: who, ip_address: null });
  server({
    [`GET ${base}/violations`]: ({ query }: Asked) => ({ json: list([of(`by-${query.get('scope')}`)]) }),
  });
  const { router } = open('/t/acme/violations?scope=user');
  const table = await screen.findByRole('table', { name: 'Violations' });
  const filter: HTMLSelectElement = screen.getByLabelText('Scope');
  const wrong: (string | null)[] = [];
  const observer = new MutationObserver(() => {
    const isOther = !table.textContent?.includes(`by-${filter.value}`);
    if (isOther && !table.closest('[aria-busy="true"]')) wrong.push(`${filter.value}: ${table.textContent}`);
  });
  observer.observe(document, { subtree: true, childList: true, characterData: true, attributes: true });
  for (const scope of ['ip', 'user'] as const) {
    // The list of users is there already when one comes back to it.
    await router.navigate({ to: '/t/$tenant/violations', params: { tenant: 'acme' }, search: { scope } });
    await within(table).findByText(`by-${scope}`);
  }
  observer.disconnect();
  expect(wrong).toEqual([]);
});

test('the delay of a queue has a column if a violation is of one', async () => {
  const queued = violation({ violation_id: 'queued', algorithm: 'leaky_bucket', queue_ms: 4935 });
  server({ [`GET ${base}/violations`]: list([queued, violation()]) });
  open('/t/acme/violations');
  const table = await screen.findByRole('table', { name: 'Violations' });
  expect(within(table).getByRole('columnheader', { name: 'Delay' })).toBeDefined();
  expect(within(table).getByText(/^4\.9.s$/)).toBeDefined();
});

test('a row opens to say what happened, and leads to an override', async () => {
  server({ [`GET ${base}/violations/${violation().violation_id}`]: oneOf() });
  const { user, router } = open('/t/acme/violations');
  const table = await screen.findByRole('table', { name: 'Violations' });
  await user.click(within(table).getByText('GET /api/search'));
  const panel = await screen.findByRole('dialog', { name: 'Violation' });
  expect(within(panel).getByText(/^User 42 on free was denied 11 times/)).toBeDefined();
  expect(await within(panel).findByText(/denied this user 61 times in total/)).toBeDefined();
  expect(within(panel).getByRole('link', { name: 'Override limit' }).getAttribute('href')).toBe(
    '/t/acme/users/42?override=12',
  );
  expect(router.state.location.search).toEqual({ open: violation().violation_id });
  await user.keyboard('{Escape}');
  await waitFor(() => expect(screen.queryByRole('dialog')).toBeNull());
});

test('a rule that was edited or removed since is said to be', async () => {
  const id = violation().violation_id;
  server({ [`GET ${base}/violations/${id}`]: oneOf({ rule: rule({ version: 9, rate_per_second: 20 }) }) });
  const { queries } = open(`/t/acme/violations?open=${id}`);
  expect(await screen.findByText(/It is now 20 per second, bursts to 50/)).toBeDefined();
  queries.setQueryData(['tenant', 'acme', 'violations', 'one', id], oneOf({ rule: null }));
  expect(await screen.findByText('The rule was removed since.')).toBeDefined();
  expect(screen.queryByRole('link', { name: 'Override limit' })).toBeNull();
});

test('a viewer sees no button that makes an override', async () => {
  const id = violation().violation_id;
  server({ 'GET /api/v1/session': session('viewer'), [`GET ${base}/violations/${id}`]: oneOf() });
  open(`/t/acme/violations?open=${id}`);
  expect(await screen.findByRole('link', { name: 'Open user 42' })).toBeDefined();
  expect(screen.queryByRole('link', { name: /Raise/ })).toBeNull();
});

test('a scan that found nothing yet says how far it got, and goes on', async () => {
  const asked: URLSearchParams[] = [];
  server({
    [`GET ${base}/violations`]: ({ query }: Asked) => {
      asked.push(query);
      return {
        json: query.has('cursor') ? list() : list([], { next_cursor: 'c1', scanned_until: '2026-11-21T05:00:00Z' }),
      };
    },
  });
  const { user } = open('/t/acme/violations?scope=user');
  const back = exactTime(Date.parse('2026-11-21T05:00:00Z')); // which day that is depends on where one is
  expect(await screen.findByText((text) => text.includes(`Searched back to ${back}`))).toBeDefined();
  await user.click(screen.getByRole('button', { name: 'Continue searching' }));
  const all = /1 violation, 11 checks. End of the list./;
  expect(await screen.findByText(all, { ignore: '[role=status]' })).toBeDefined();
  // Both pages are of the same time, however long one waited before turning the page.
  expect(asked[1]?.get('cursor')).toBe('c1');
  expect(asked[1]?.get('until')).toBe(asked[0]?.get('until'));
});

const event = (one: object) => `event: violation\ndata: ${JSON.stringify(one)}\n\n`;
const fresh = violation({ violation_id: '1795175499000000-1', user_id: '77' });

test('live, rows do not move: what is new is counted, each once, and shown when that is pressed', async () => {
  server({
    [`GET ${base}/violations/tail`]: () => ({
      events: `: alive\n\n${event(violation())}${event(fresh)}event: skipped\ndata: {}\n\n`,
    }),
  });
  const { user, router } = open('/t/acme/violations?range=2026-11-21T05:00:00Z~2026-11-21T06:00:00Z');
  const rows = () => within(screen.getByRole('table', { name: 'Violations' })).getAllByRole('row');
  await screen.findByRole('table', { name: 'Violations' });
  await user.click(screen.getByRole('button', { name: 'Live' }));
  const show = await screen.findByRole('button', { name: '1 new' });
  expect(rows()).toHaveLength(2);
  expect(router.state.location.search).toEqual({ live: 'true', range: '15m' });
  await user.click(show);
  expect(rows()).toHaveLength(3);
  expect(rows()[1]?.textContent).toMatch(/77/);
  await user.click(screen.getByRole('button', { name: 'Live' }));
  await waitFor(() => expect(router.state.location.search).toEqual({ range: '15m' }));
  expect(rows()).toHaveLength(3);
});

test('starting Live on an old list reads it again, so that nothing is missing between', async () => {
  let listed = 0;
  server({
    [`GET ${base}/violations`]: () => {
      listed++;
      return {
        json: list(listed > 1 ? [violation({ violation_id: '1795175495000000-1', user_id: '55' })] : []),
      };
    },
    [`GET ${base}/violations/tail`]: () => ({ events: ': alive\n\n' }),
  });
  const { user } = open('/t/acme/violations');
  await screen.findByText('No violations in this time range');
  await user.click(screen.getByRole('button', { name: 'Live' }));
  expect(await screen.findByText('55')).toBeDefined();
});

test('rows are links to their panel', async () => {
  server();
  open('/t/acme/violations');
  const link = await screen.findByRole('link', { name: /^42/ });
  expect(link.getAttribute('href')).toBe(`/t/acme/violations?open=${violation().violation_id}`);
});

test('the chart of an address is counted by the server, and says how far back', async () => {
  const asked = asking('stats/violations', () => ({
    ...violationSeries([4, 9]),
    looked_back_to: '2026-11-21T05:00:00Z',
  }));
  open('/t/acme/violations?ip=203.0.113.9');
  expect(await screen.findByText(/From the latest 100,000 records, back to /)).toBeDefined();
  expect(asked[0]?.get('ip')).toBe('203.0.113.9');
});

test('the chart of recorded violations claims no more than a lower bound', async () => {
  server();
  open('/t/acme/violations?ip=203.0.113.9');
  expect(await screen.findByText(/^Recorded violations only\./)).toBeDefined();
  expect(await screen.findByLabelText('At least 11 checks were denied')).toBeDefined();
});

test('the chart of exact counts says no more than them', async () => {
  server({ [`GET ${base}/stats/violations`]: { ...violationSeries([11]), exact: true } });
  open('/t/acme/violations?ip=203.0.113.9');
  expect(await screen.findByLabelText('11 checks were denied')).toBeDefined();
  expect(screen.queryByText(/can be higher|back to/)).toBeNull();
});

test('the chart of a network tells apart what was denied, and what shadow rules would have denied', async () => {
  server({
    [`GET ${base}/stats/violations`]: ({ query }: Asked) => ({
      json: violationSeries(query.get('mode') === 'shadow' ? [5] : query.get('mode') === 'enforce' ? [2] : [7]),
    }),
    [`GET ${base}/violations`]: {
      items: [violation({ reason: 'store_unavailable' })],
      next_cursor: null,
      scanned_until: null,
    },
  });
  open('/t/acme/violations?ip=203.0.113.0/24');
  expect(await screen.findByLabelText('At least 2 checks were denied')).toBeDefined();
  expect(await screen.findByText('would deny')).toBeDefined();
  expect(await screen.findByText('Denied, degraded')).toBeDefined();
});

test('the filter has the name of a removed rule', async () => {
  server({
    [`GET ${base}/audit`]: page([
      auditEntry({
        action: 'remove',
        object: { kind: 'rule', id: '77' },
        before: { ...rule({ rule_id: '77', key_pattern: 'user:{user_id}', name: 'spring', plan: 'free' }) },
        after: null,
      }),
    ]),
  });
  open('/t/acme/violations?rule=77');
  expect(await screen.findByDisplayValue('Each user · spring · free · removed')).toBeDefined();
});

test('a violation’s address is blocked for a time, beside the violation', async () => {
  const row = violation({ ip_address: '203.0.113.9' });
  server({
    [`GET ${base}/violations`]: list([row]),
    [`GET ${base}/violations/${row.violation_id}`]: detailed(row),
  });
  const { user } = open(`/t/acme/violations?open=${row.violation_id}`);
  await user.click(await screen.findByRole('button', { name: 'Block this address' }));
  const dialog = await screen.findByRole('dialog', { name: 'Block address 203.0.113.9' });
  expect(await within(dialog).findByRole('button', { name: 'Block for 1 hour' })).toBeDefined();
});

function ofTwoAddresses() {
  const rows = ['203.0.113.9', '198.51.100.7'].map((ip_address, index) =>
    violation({ violation_id: `v-${index}`, ip_address }),
  );
  const details = rows.map((row) => [`GET ${base}/violations/${row.violation_id}`, detailed(row)]);
  server({ [`GET ${base}/violations`]: list(rows), ...Object.fromEntries(details) });
}

test('the keys that step through violations rest while an address is blocked', async () => {
  ofTwoAddresses();
  const { user, router } = open('/t/acme/violations?open=v-0');
  await user.click(await screen.findByRole('button', { name: 'Block this address' }));
  const dialog = await screen.findByRole('dialog', { name: 'Block address 203.0.113.9' });
  const cancel = await within(dialog).findByRole('button', { name: 'Cancel' });
  cancel.focus();
  await user.keyboard('j');
  expect(router.state.location.search).toEqual({ open: 'v-0' });
  expect(dialog.isConnected).toBe(true);
  await user.click(cancel);
  await waitFor(() => expect(dialog.isConnected).toBe(false));
  await user.keyboard('j');
  await waitFor(() => expect(router.state.location.search).toEqual({ open: 'v-1' }));
  await user.click(await screen.findByRole('button', { name: 'Block this address' }));
  expect(await screen.findByRole('dialog', { name: 'Block address 198.51.100.7' })).toBeDefined();
});

test('another violation closes the dialog that blocks the address of the one before', async () => {
  ofTwoAddresses();
  const { user, router } = open('/t/acme/violations?open=v-0');
  await user.click(await screen.findByRole('button', { name: 'Block this address' }));
  await screen.findByRole('dialog', { name: 'Block address 203.0.113.9' });
  await router.navigate({ to: '.', search: { open: 'v-1' } });
  await waitFor(() => expect(screen.queryByRole('dialog', { name: /^Block address/ })).toBeNull());
});

test('the address that is filtered is blocked from the page', async () => {
  server();
  const { user } = open('/t/acme/violations?ip=203.0.113.9');
  await user.click(await screen.findByRole('button', { name: 'Block or let through' }));
  await user.click(await screen.findByRole('menuitem', { name: /^Block/ }));
  expect(await screen.findByRole('dialog', { name: 'Block address 203.0.113.9' })).toBeDefined();
});

test('a stream that broke goes on where it was, and what it skips is read from the list', async () => {
  const one = (id: string) =>
    `id: ${id}\nevent: violation\ndata: ${JSON.stringify(violation({ violation_id: id }))}\n\n`;
  const answers = [one('1-1'), `event: skipped\ndata: {}\n\n${one('3-3')}`];
  const resumed: (string | null)[] = [];
  server({
    [`GET ${base}/violations`]: () => {
      return { json: list(resumed.length < 2 ? [] : [violation({ violation_id: '2-2', user_id: '88' })]) };
    },
    [`GET ${base}/violations/tail`]: ({ headers }: { headers: Headers }) => {
      resumed.push(headers.get('Last-Event-ID'));
      return { events: answers.shift() ?? ': still here\n\n' };
    },
  });
  const { user } = open('/t/acme/violations?live=true');
  await user.click(await screen.findByRole('button', { name: '2 new' }, { timeout: 10_000 }));
  expect(await screen.findByText('88')).toBeDefined();
  expect(resumed.slice(0, 2)).toEqual([null, '1-1']);
}, 20_000);

test('what a pause missed is read from the list, and Live says where some are missing', async () => {
  const asked: URLSearchParams[] = [];
  server({
    [`GET ${base}/violations`]: ({ query }: Asked) => {
      asked.push(query);
      if (query.get('limit') !== '500') return { json: list() };
      return {
        json: list([violation({ violation_id: '1795175498000000-1', user_id: '88' })], {
          next_cursor: 'more',
        }),
      };
    },
    [`GET ${base}/violations/tail`]: () => ({ events: ': alive\n\n' }),
  });
  const { user } = open('/t/acme/violations');
  await screen.findByRole('table', { name: 'Violations' });
  await user.click(screen.getByRole('button', { name: 'Live' }));
  await user.click(await screen.findByRole('button', { name: '1 new' }));
  expect(await screen.findByText('88')).toBeDefined();
  const filled = asked.filter((query) => query.get('limit') === '500');
  expect(filled.length).toBe(4);
  expect(Date.parse(filled[0]?.get('from') ?? '')).toBe(Date.parse(violation().requested_at) - 10_000);
  expect(screen.getAllByText(/Too many arrived: some before .* are not shown\./).length).toBeGreaterThan(0);
});

test('denials are grouped, and an address is blocked for an hour from its group', async () => {
  const requests = server({
    [`GET ${base}/stats/top`]: ({ query }: Asked) => ({
      json: { ...top(query.get('by') as 'network', [{ value: '203.0.113.0/24', denied: 90 }]), unattributed: 4 },
    }),
    [`POST ${base}/effect`]: effect({}),
    [`POST ${base}/rules`]: () => ({
      status: 201,
      json: rule({ action: 'block', expires_at: '2026-11-21T07:00:00Z' }),
    }),
  });
  const { user, router } = open('/t/acme/violations?user=42');
  await user.click(await screen.findByRole('radio', { name: 'Networks' }));
  await waitFor(() => expect(router.state.location.search).toEqual({ group: 'network' }));
  const row = await screen.findByRole('link', { name: '203.0.113.0/24' });
  expect(row.getAttribute('href')).toContain('ip=203.0.113.0%2F24');
  expect(screen.getByText(/are of networks that were too many/)).toBeDefined();
  await user.click(screen.getByRole('button', { name: 'Actions for network 203.0.113.0/24' }));
  await user.click(await screen.findByRole('menuitem', { name: /^Block/ }));
  const dialog = await screen.findByRole('dialog', { name: 'Block network 203.0.113.0/24' });
  expect(dialog.textContent).toMatch(/90 checks of this network were denied/);
  await user.click(within(dialog).getByRole('button', { name: 'Block for 1 hour' }));
  const sent = await requested(requests, 'POST', '/rules');
  expect(sent?.body).toMatchObject({
    key_pattern: 'ip:203.0.113.0/24',
    name: 'temporary',
    action: 'block',
    mode: 'enforce',
    expires_in_seconds: 3600, // the end itself is the server's, since a browser's clock can be wrong
  });
  expect(sent?.body).not.toHaveProperty('expires_at');
});

test('who was blocked by somebody else meanwhile is said to be, and a second press replaces that', async () => {
  const theirs = rule({
    rule_id: '21',
    key_pattern: 'ip:203.0.113.9',
    name: 'temporary',
    plan: null,
    action: 'block',
    expires_at: new Date(Date.now() + 3_600_000).toISOString(),
  });
  let rules = [rule()];
  const requests = server({
    [`GET ${base}/rules`]: () => ({ json: page(rules) }),
    [`GET ${base}/stats/present`]: present('ip', { '203.0.113.9': 120 }, 120),
    [`POST ${base}/effect`]: effect({}),
    [`POST ${base}/rules`]: () => {
      rules = [rule(), theirs];
      return problem(409, 'conflict', { detail: 'choose another name' });
    },
    [`PATCH ${base}/rules/21`]: () => ({ json: theirs }),
  });
  const { user } = open('/t/acme/violations?ip=203.0.113.9');
  await user.click(await screen.findByRole('button', { name: 'Block or let through' }));
  await user.click(await screen.findByRole('menuitem', { name: /^Block/ }));
  const dialog = await screen.findByRole('dialog', { name: 'Block address 203.0.113.9' });
  expect(await within(dialog).findByText(/Now: 120 per minute of this address are denied/)).toBeDefined();
  const block = await within(dialog).findByRole('button', { name: 'Block for 1 hour' });
  await user.click(block);
  expect((await within(dialog).findByRole('alert')).textContent).toMatch(/Somebody else changed this address/);
  expect(dialog.textContent).not.toMatch(/another name/);
  expect(dialog.textContent).toMatch(/This address is blocked already, until .* by rule Address 203\.0\.113\.9/);
  await user.click(block);
  await waitFor(() => expect(screen.queryByRole('dialog')).toBeNull());
  expect(requests.find(({ method }) => method === 'PATCH')?.headers.get('If-Match')).toBe(`"${theirs.version}"`);
});

test('letting through names what is always denied and opens with it, and a limit is a further one', async () => {
  server({
    [`GET ${base}/rules`]: page([
      rule({ rule_id: '30', key_pattern: 'endpoint:/internal/*', action: 'block', plan: null }),
      rule({ rule_id: '31', key_pattern: 'ip:198.51.100.0/24', action: 'block', plan: null }),
    ]),
    [`GET ${base}/stats/top`]: top('ip', []),
    [`POST ${base}/effect`]: effect({}),
  });
  const { user } = open('/t/acme/violations?ip=203.0.113.9');
  await user.click(await screen.findByRole('button', { name: 'Block or let through' }));
  expect(await screen.findByRole('menuitem', { name: 'Limit further …' })).toBeDefined();
  await user.click(await screen.findByRole('menuitem', { name: /^Let through/ }));
  const dialog = await screen.findByRole('dialog', { name: 'Let through address 203.0.113.9' });
  const list = await within(dialog).findByRole('list', { name: 'Opened block rules' });
  expect(list.textContent).toBe('Everything below /internal/ all plans');
  await user.click(within(dialog).getByRole('radio', { name: 'Block' }));
  expect(within(dialog).queryByRole('list', { name: 'Opened block rules' })).toBeNull();
});

test('on a phone the rows of violations keep their endpoint and rule, on a line below', async () => {
  server();
  open('/t/acme/violations');
  const table = await screen.findByRole('table', { name: 'Violations' });
  const under = [...table.querySelectorAll('td[data-under]')].map(
    (cell) => `${cell.getAttribute('data-under')}: ${cell.textContent}`,
  );
  expect(under).toEqual(['Endpoint: GET /api/search', 'Rule: Each user pro']);
});

test('a rule that denies much is let through for an hour from its group', async () => {
  const busy = rule({ rule_id: '12', version: 3 });
  const requests = server({
    [`GET ${base}/stats/top`]: top('rule', [
      { value: '12', denied: 90, checks: 100, rule: named },
      { value: '13', denied: 8, checks: 10, rule: { ...named, rule_id: '13', mode: 'shadow' } },
      { value: '14', denied: 7, checks: 10 },
    ]),
    [`GET ${base}/rules/12`]: () => ({ json: busy, headers: { ETag: '"3"' } }),
    [`POST ${base}/effect`]: effect({}),
    [`POST ${base}/scheduled-changes`]: () => ({
      status: 201,
      json: scheduledChange({
        rules: [{ rule_id: '12', change: { mode: 'shadow' }, failure: null }],
        state: 'in_force',
      }),
    }),
  });
  const { user } = open('/t/acme/violations?group=rule');
  const [first, second, none] = await screen.findAllByRole('button', { name: /^Actions for rule/ });
  expect(none).toBeUndefined(); // of the rule that was removed
  await user.click(second as HTMLElement);
  expect((await screen.findAllByRole('menuitem')).map(({ textContent }) => textContent)).toEqual([
    'Enforce …',
    'Open rule',
  ]);
  await user.keyboard('{Escape}');
  await user.click(first as HTMLElement);
  await user.click(await screen.findByRole('menuitem', { name: /^Change limit/ }));
  const dialog = await screen.findByRole('dialog', { name: /^Change limit/ });
  expect(dialog.textContent).toMatch(/it denied 90 checks/);
  expect(within(dialog).getByLabelText('Burst')).toHaveProperty('value', String(2 * busy.burst_capacity));
  await user.click(within(dialog).getByRole('radio', { name: 'Let through' }));
  await user.click(within(dialog).getByRole('button', { name: 'Let through for 1 hour' }));
  await waitFor(() => expect(screen.queryByRole('dialog')).toBeNull());
  const sent = requests.find(({ method, path }) => method === 'POST' && path.endsWith('/scheduled-changes'));
  expect(sent?.body).toEqual({
    rules: [{ rule_id: '12', version: 3, change: { mode: 'shadow' } }],
    ends_in_seconds: 3600,
  });
});

test('a rule that somebody else changed is shown as it is now, and a second press changes that', async () => {
  let version = 3;
  const sent: unknown[] = [];
  server({
    [`GET ${base}/stats/top`]: top('rule', [{ value: '12', denied: 90, checks: 100, last_at: null, rule: named }]),
    [`GET ${base}/rules/12`]: () => ({ json: rule({ rule_id: '12', version }), headers: { ETag: `"${version}"` } }),
    [`POST ${base}/scheduled-changes`]: ({ body }: { body: { rules: { version: number }[] } }) => {
      sent.push(body.rules[0]?.version);
      version = 4;
      const pointer = '/rules/0/version';
      return problem(412, 'precondition-failed', {
        errors: [{ pointer, detail: "is no longer the rule's version: somebody else changed it" }],
      });
    },
  });
  const { user } = open('/t/acme/violations?group=rule');
  const [first] = await screen.findAllByRole('button', { name: /^Actions for rule/ });
  await user.click(first as HTMLElement);
  await user.click(await screen.findByRole('menuitem', { name: /^Let through/ }));
  const dialog = await screen.findByRole('dialog');
  const press = within(dialog).getByRole('button', { name: 'Let through for 1 hour' });
  await user.click(press);
  expect((await within(dialog).findByRole('alert')).textContent).toMatch(/^Somebody else changed this rule/);
  await user.click(press);
  await waitFor(() => expect(sent).toEqual([3, 4]));
});

test.each([
  ['too-many-requests', 'You have too many open streams; close one, or wait until one ends.'],
  [limitExceeded, 'You have used the server for as long as one account may.'],
])('a live view that is refused as %s says why, and goes on when it may', async (kind, detail) => {
  let refusals = 1;
  server({
    [`GET ${base}/violations/tail`]: () =>
      refusals-- > 0
        ? { ...problem(429, kind, { detail }), headers: { 'Retry-After': '1' } }
        : { events: `: alive\n\n${event(violation({ violation_id: 'new' }))}` },
  });
  open('/t/acme/violations?live=true');
  expect((await screen.findAllByText(new RegExp(detail)))[0]).toBeDefined();
  expect(await screen.findByRole('button', { name: '1 new' }, { timeout: 5000 })).toBeDefined();
  // Screen readers are told some seconds later.
  await waitFor(() => expect(screen.queryByText(new RegExp(detail), { ignore: '[role=status]' })).toBeNull());
});

test('the chart counts what the rows are: an outcome of one rule comes from the records', async () => {
  const asked = asking('stats/violations', () => violationSeries([7]));
  open('/t/acme/violations?rule=12&mode=shadow');
  expect(await screen.findByText(/Recorded violations only/)).toBeDefined();
  expect(asked[0]?.get('rule_id')).toBe('12');
  expect(asked[0]?.get('mode')).toBe('shadow');
});

test('shares are of all denials, also of those that no row has', async () => {
  server({
    [`GET ${base}/stats/series`]: series([verdicts(10, 400)]),
    [`GET ${base}/stats/top`]: { ...top('user', [{ value: '42', denied: 100 }]), unattributed: 50 },
  });
  open('/t/acme/violations?group=user');
  expect(await screen.findByText('25 %')).toBeDefined();
});

test('minutes that have not begun are not drawn', async () => {
  const later = { ...verdicts(0, 0), at: new Date(Date.now() + 600_000).toISOString() };
  const past = series([verdicts(10, 11)]);
  const client = new QueryClient();
  server({ [`GET ${base}/stats/series`]: { ...past, points: [...past.points, later] } });
  const { points } = await client.fetchQuery(seriesQuery('acme', namedSpan('1h')));
  expect(points).toEqual(past.points);
});

test('export takes the filters along', async () => {
  let asked: URLSearchParams | undefined;
  server({
    [`POST ${base}/violations/export`]: ({ query }: Asked) => {
      asked = query;
      return { status: 202, json: readyExport() };
    },
    [`GET ${base}/exports/7`]: readyExport(),
  });
  const { user } = open('/t/acme/violations?user=42&rule=12');
  await user.click(await screen.findByRole('button', { name: 'Export' }));
  await user.click(await screen.findByRole('menuitem', { name: /JSON lines/ }));
  const ready = await screen.findByRole('dialog', { name: 'Export ready' });
  expect(within(ready).getByRole('link', { name: 'Download' }).getAttribute('href')).toBe(`${base}/exports/7/file`);
  expect(Object.fromEntries(asked ?? [])).toMatchObject({ format: 'jsonl', user_id: '42', rule_id: '12' });
});

test('an empty list explains what a violation is', async () => {
  server({ [`GET ${base}/violations`]: list([]) });
  open('/t/acme/violations');
  expect(await screen.findByRole('heading', { name: 'No violations in this time range' })).toBeDefined();
});

test('somebody whose role does not include it is told so', async () => {
  server({ [`GET ${base}/violations`]: () => problem(403, 'forbidden') });
  open('/t/acme/violations');
  expect(await screen.findByRole('heading', { name: 'You do not have permission' })).toBeDefined();
});
