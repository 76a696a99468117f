import { screen, waitFor, within } from '@testing-library/react';
import { afterEach, expect, test, vi } from 'vitest';
import { account, fakeServer, page, plan, problem, rule, session } from '../../../test/fake';
import { open } from '../../../test/render';
import {
  busiest,
  present,
  process,
  series,
  status,
  summary,
  tenantStatus,
  top,
  verdicts,
  violation,
} from '../../../test/traffic';
import { trendOf } from './limited';

const base = '/api/v1/tenants/acme';
const day = 86_400_000;

afterEach(() => {
  vi.useRealTimers();
});

const denials = (items: ReturnType<typeof violation>[]) => ({ items, next_cursor: null, scanned_until: null });

function sums(today: ReturnType<typeof summary>, yesterday = summary(verdicts(99, 1))) {
  return ({ query }: { query: URLSearchParams }) => {
    const age = Date.now() - Date.parse(query.get('until') ?? '');
    return { json: age > day / 2 ? yesterday : today };
  };
}

const half = {
  rule_id: '31',
  key_pattern: 'user:{user_id}',
  name: 'half',
  plan: 'free',
  meter: 'requests',
  scope: 'user',
  mode: 'shadow',
  removed: false,
} as const;

function traffic(more: Record<string, unknown> = {}) {
  return {
    'GET /api/v1/session': session(),
    [`GET ${base}/status`]: tenantStatus(),
    [`GET ${base}/stats/summary`]: sums(
      summary(verdicts(98_000, 2000), { shadow_rules: [{ rule: half, checks: 40_000, denied: 800 }] }),
    ),
    [`GET ${base}/stats/series`]: series([verdicts(10, 1)]),
    [`GET ${base}/stats/top`]: ({ query }: { query: URLSearchParams }) => ({
      json: query.get('by') === 'user' ? top('user', [{ value: '42', denied: 1234 }]) : top('ip', []),
    }),
    [`GET ${base}/violations`]: denials([violation({ user_id: '42' })]),
    [`GET ${base}/rules`]: page([]),
    ...more,
  };
}

test('the share denied stands beside that of the same time yesterday', async () => {
  fakeServer(traffic());
  open('/t/acme');
  const tiles = await screen.findByRole('region', { name: 'Summary' });
  expect(await within(tiles).findByText(/1\.0 % yesterday/)).toBeDefined();
  expect(within(tiles).getByText('2.0 %')).toBeDefined();
});

test('the comparison with yesterday is read again as its range moves with the time', async () => {
  vi.useFakeTimers({ shouldAdvanceTime: true });
  const asked: number[] = [];
  fakeServer(
    traffic({
      [`GET ${base}/stats/summary`]: ({ query }: { query: URLSearchParams }) => {
        const until = Date.parse(query.get('until') ?? '');
        const old = Date.now() - until > day / 2;
        if (old) asked.push(until);
        return { json: old ? summary(verdicts(100 - asked.length, asked.length)) : summary(verdicts(98, 2)) };
      },
    }),
  );
  open('/t/acme/overview?range=1h');
  const tiles = await screen.findByRole('region', { name: 'Summary' });
  expect(await within(tiles).findByText(/1\.0 % yesterday/)).toBeDefined();
  await vi.advanceTimersByTimeAsync(60_000);
  await waitFor(() => expect(asked.length).toBeGreaterThan(1));
  expect(asked[1]).toBeGreaterThan(asked[0] ?? 0);
  await waitFor(() => expect(within(tiles).queryByText(/1\.0 % yesterday/)).toBeNull());
});

test('the overview is read by a meter, if rules count several', async () => {
  const asked = new Map<string, string | null>();
  const note = (answer: (query: URLSearchParams) => unknown) => {
    return ({ path, query }: { path: string; query: URLSearchParams }) => {
      asked.set(path.replace(/.*[/]/, ''), query.get('meter'));
      return { json: answer(query) };
    };
  };
  fakeServer(
    traffic({
      [`GET ${base}/stats/summary`]: note((query) =>
        summary(query.get('meter') ? { ...verdicts(40, 10), cost: 1_234_567 } : verdicts(98, 2), {
          meters: ['input_tokens', 'usd'],
        }),
      ),
      [`GET ${base}/stats/series`]: note(() => series([verdicts(10, 1)])),
      [`GET ${base}/stats/top`]: note(() => top('user', [{ value: '42', denied: 1234 }])),
      [`GET ${base}/stats/present`]: note(() => present('user', { 42: 6 }, 6)),
      [`GET ${base}/violations`]: note(() => denials([violation({ user_id: '42' })])),
    }),
  );
  const { user } = open('/t/acme/overview');
  const choice = await screen.findByRole('combobox', { name: 'Meter' });
  expect(
    within(choice)
      .getAllByRole('option')
      .map(({ textContent }) => textContent),
  ).toEqual(['All meters', 'requests', 'input tokens', 'USD']);
  await user.selectOptions(choice, 'input tokens');
  const tiles = await screen.findByRole('region', { name: 'Summary' });
  await within(tiles).findByText(/cost 1\.2\sM input tokens/);
  await waitFor(() => {
    for (const what of ['summary', 'series', 'top', 'present', 'violations']) {
      expect([what, asked.get(what)]).toEqual([what, 'input_tokens']);
    }
  });
});

test('a tenant whose rules count requests has no choice of meters', async () => {
  fakeServer(traffic());
  open('/t/acme/overview');
  await screen.findByRole('region', { name: 'Summary' });
  expect(screen.queryByRole('combobox', { name: 'Meter' })).toBeNull();
});

test('a tenant without Redis is told that its buckets are in memory', async () => {
  fakeServer(traffic({ [`GET ${base}/status`]: tenantStatus({ redis: 'memory' }) }));
  open('/t/acme/overview');
  expect(await screen.findByText(/buckets in memory/)).toBeDefined();
});

test('one table says who is limited, by which rule and where', async () => {
  fakeServer(traffic());
  open('/t/acme/overview');
  const table = await screen.findByRole('table', { name: 'Top callers' });
  const link = within(table).getByRole('link', { name: '42' });
  expect(link.getAttribute('href')).toBe('/t/acme/users/42');
  expect(link.closest('tr')?.textContent).toMatch(/42.*Each user.*\/api\/search.*1,234.*Block/);
});

/** 198.51.100.0/24 denied 9,702 times a minute of 10,002, and user 42 now and then. */
function attack(more: Record<string, unknown> = {}) {
  return traffic({
    [`GET ${base}/stats/top`]: ({ query }: { query: URLSearchParams }) => {
      if (query.get('by') === 'user') return { json: top('user', [{ value: '42', denied: 7 }]) };
      return { json: top('network', [{ value: '198.51.100.0/24', denied: 20_000 }]) };
    },
    [`GET ${base}/stats/present`]: ({ query }: { query: URLSearchParams }) => {
      if (query.get('by') === 'user') return { json: present('user', { 42: 6 }, 10_002) };
      return { json: present('network', { '198.51.100.0/24': 9_702 }, 10_002) };
    },
    [`GET ${base}/violations`]: ({ query }: { query: URLSearchParams }) => ({
      json: denials([violation({ user_id: query.get('user_id') })]),
    }),
    ...more,
  });
}

test('one source that makes most denials is named above the table, with what blocks it', async () => {
  fakeServer(attack());
  const { user } = open('/t/acme/overview');
  const sentence = (await screen.findByText(/of all denials/)).closest('div') as HTMLElement;
  expect(sentence.textContent?.replaceAll('\u202f', ' ')).toContain(
    'Network 198.51.100.0/24 makes 97 % of all denials: 9,702 a minute, mostly on /api/search.',
  );
  await user.click(within(sentence).getByRole('button', { name: 'Block network 198.51.100.0/24' }));
  expect(await screen.findByRole('dialog', { name: 'Block network 198.51.100.0/24' })).toBeDefined();
});

test('the rate of an attack falls while the table stays, and says when counts are lower bounds', async () => {
  vi.useFakeTimers({ shouldAdvanceTime: true });
  let rate = 9_702;
  fakeServer(
    attack({
      [`GET ${base}/stats/present`]: ({ query }: { query: URLSearchParams }) => {
        if (query.get('by') === 'user') return { json: present('user', {}, rate) };
        return { json: present('network', { '198.51.100.0/24': rate }, rate, { rule: half }) };
      },
      [`GET ${base}/stats/top`]: ({ query }: { query: URLSearchParams }) => {
        if (query.get('by') === 'user') return { json: top('user', []) };
        const json = top('network', [{ value: '198.51.100.0/24', denied: 20_000 }]);
        return { json: { ...json, unattributed: 3 } };
      },
    }),
  );
  open('/t/acme/overview');
  const table = await screen.findByRole('table', { name: 'Top callers' });
  const row = (await within(table).findByText('9,702')).closest('tr') as HTMLElement;
  // The rule is the one that denies most, and not that of recorded denials.
  expect(
    within(row)
      .getByRole('link', { name: /Each user/ })
      .getAttribute('href'),
  ).toBe('/t/acme/rules/31');
  expect(screen.getByText(/^“Denied” can be higher/)).toBeDefined();
  rate = 0;
  await vi.advanceTimersByTimeAsync(5_000);
  await waitFor(() => expect(screen.queryByText(/of all denials/)).toBeNull());
  expect(within(table).getByText('20.0 k', { normalizer: (text) => text.replaceAll('\u202f', ' ') })).toBeDefined();
});

/** 198.51.100.0/24 makes 29,704 checks a minute of 36,912, all allowed; 7,190 were usual. */
function flood(usual = 7_190, more: Record<string, unknown> = {}) {
  return traffic({
    [`GET ${base}/stats/top`]: ({ query }: { query: URLSearchParams }) => {
      const users = Array.from({ length: 9 }, (_, user) => ({ value: String(user), denied: 20 - user }));
      return { json: top(query.get('by') as 'user', query.get('by') === 'user' ? users : []) };
    },
    [`GET ${base}/stats/busiest`]: ({ query }: { query: URLSearchParams }) => {
      if (query.get('by') === 'user') return { json: busiest('user', { 3: [800, 790] }, 36_912, usual) };
      return { json: busiest('network', { '198.51.100.0/24': [29_704, 0] }, 36_912, usual) };
    },
    ...more,
  });
}

test('a source of most checks is named and listed, though none is denied', async () => {
  fakeServer(flood());
  const { user } = open('/t/acme/overview');
  const sentence = (await screen.findByText(/of all checks/)).closest('div') as HTMLElement;
  expect(sentence.textContent?.replaceAll('\u202f', ' ')).toContain(
    'Network 198.51.100.0/24 makes 80 % of all checks: 29.7 k a minute, none denied.',
  );
  const rows = within(await screen.findByRole('table', { name: 'Top callers' })).getAllByRole('row');
  const texts = rows.slice(1).map(({ textContent }) => textContent?.replaceAll('\u202f', ' '));
  expect(texts).toHaveLength(8); // of nine users one is less, and the last row is for the network
  expect(texts[3]).toMatch(/^3 .*800/);
  expect(texts[7]).toMatch(/^198\.51\.100\.0\/24 network——?.*29\.7 k/);
  await user.click(within(sentence).getByRole('button', { name: 'Block network 198.51.100.0/24' }));
  expect(await screen.findByRole('dialog', { name: 'Block network 198.51.100.0/24' })).toBeDefined();
});

test.each([
  [10_000, 'Network 198.51.100.0/24 makes 80 % of all checks: 29.7 k a minute, none denied.'],
  [20_000, 'User 3 makes 100 % of all denials: 20.0 k a minute'],
])('beside %i denials of somebody else, the sentence is of the larger', async (denied, want) => {
  fakeServer(
    flood(7_190, {
      [`GET ${base}/stats/present`]: ({ query }: { query: URLSearchParams }) => {
        const by = query.get('by') as 'user';
        return { json: present(by, by === 'user' ? { 3: denied } : {}, denied) };
      },
    }),
  );
  open('/t/acme/overview');
  const sentence = (await screen.findByText(/of all (checks|denials)/)).closest('div') as HTMLElement;
  await waitFor(() => expect(sentence.textContent?.replaceAll('\u202f', ' ')).toContain(want));
});

test('a source of most checks is listed only, if nobody else ever made many', async () => {
  fakeServer(flood(0));
  open('/t/acme/overview');
  expect(await screen.findByRole('button', { name: 'Block network 198.51.100.0/24' })).toBeDefined();
  expect(screen.queryByText(/of all checks/)).toBeNull();
});

test('who makes most checks is not said of a range in the past', async () => {
  fakeServer(flood());
  open('/t/acme/overview?range=2026-11-20T00:00Z~2026-11-20T12:00Z');
  await screen.findByRole('table', { name: 'Top callers' });
  expect(screen.queryByText('198.51.100.0/24')).toBeNull();
});

test('a network whose denials are those of a listed user is not listed again', async () => {
  fakeServer(attack({ [`GET ${base}/violations`]: denials([violation({ user_id: '42' })]) }));
  open('/t/acme/overview');
  const table = await screen.findByRole('table', { name: 'Top callers' });
  expect(within(table).getAllByRole('row')).toHaveLength(2);
});

test('users who share their denials with a network of many are not listed beside it', async () => {
  const from = (user: string, address: string) => violation({ user_id: user, ip_address: address });
  const many = Array.from({ length: 30 }, (_, user) => from(`bot ${user}`, `198.51.100.${user}`));
  fakeServer(
    traffic({
      [`GET ${base}/stats/top`]: ({ query }: { query: URLSearchParams }) => {
        const users = ['bot 3', 'late bot', 'alone'].map((value) => ({ value, denied: 50 }));
        return {
          json: top(query.get('by') as 'user', query.get('by') === 'user' ? users : [{ value: '198.51.100.0/24' }]),
        };
      },
      [`GET ${base}/violations`]: ({ query }: { query: URLSearchParams }) => {
        const asked = query.get('user_id');
        const address = asked === 'alone' ? '203.0.113.9' : '198.51.100.99';
        return { json: denials(asked === null ? many : [from(asked, address)]) };
      },
    }),
  );
  open('/t/acme/overview');
  const table = await screen.findByRole('table', { name: 'Top callers' });
  const callers = within(table).getAllByRole('row').slice(1);
  expect(callers.map(({ textContent }) => textContent?.split(/ |Each/)[0])).toEqual(['alone', '198.51.100.0/24']);
});

test('a network that is left out is not listed for its checks either', async () => {
  fakeServer(
    attack({
      [`GET ${base}/violations`]: denials([violation({ user_id: '42' })]),
      [`GET ${base}/stats/busiest`]: ({ query }: { query: URLSearchParams }) => {
        if (query.get('by') === 'user') return { json: busiest('user', { 42: [10_000, 9_000] }, 12_000, 11_000) };
        return { json: busiest('network', { '198.51.100.0/24': [10_000, 9_000] }, 12_000, 11_000) };
      },
    }),
  );
  open('/t/acme/overview');
  const table = await screen.findByRole('table', { name: 'Top callers' });
  await within(table).findByText('10.0 k');
  expect(within(table).getAllByRole('row')).toHaveLength(2);
});

test.each([
  [234, 300, 'few a minute'],
  [1_500, 8_000, 'few beside usual checks'],
])('%i denials a minute of one user beside %i usual checks are no attack: %s', async (rate, usual) => {
  const one = present('user', { 42: rate }, rate);
  fakeServer(
    traffic({
      [`GET ${base}/stats/present`]: ({ query }: { query: URLSearchParams }) => ({
        json: query.get('by') === 'user' ? one : present('network', {}, rate),
      }),
      [`GET ${base}/stats/busiest`]: ({ query }: { query: URLSearchParams }) => ({
        json: busiest(query.get('by') as 'user', { 77: [600, 600] }, usual, usual),
      }),
    }),
  );
  open('/t/acme/overview');
  const table = await screen.findByRole('table', { name: 'Top callers' });
  await within(table).findByText(rate.toLocaleString('en'));
  await within(table).findAllByText('600');
  expect(screen.queryByText(/of all denials/)).toBeNull();
});

test.each([
  [100, 100, 'steady'],
  [120, 100, 'steady'],
  [130, 100, 'up'],
  [60, 100, 'down'],
  [3, 0, 'steady'],
] as const)('%i denials a minute after %i are %s', (now, before, trend) => {
  expect(trendOf(now, before)).toBe(trend);
});

test('what a rule would have denied in shadow mode counts after it was promoted', async () => {
  fakeServer(
    traffic({
      [`GET ${base}/stats/summary`]: sums(summary(verdicts(98, 2), { shadow_denied: 50, shadow_rules: [] })),
    }),
  );
  open('/t/acme/overview');
  const tiles = await screen.findByRole('region', { name: 'Summary' });
  const tile = (await within(tiles).findByRole('heading', { name: 'Shadow rules would deny' })).parentElement;
  expect(tile?.textContent).toBe('Shadow rules would deny50View checks');
});

test('a shadow rule says what it would deny', async () => {
  fakeServer(traffic());
  open('/t/acme/overview');
  const table = await screen.findByRole('table', { name: 'Rules in shadow mode' });
  const row = within(table).getAllByRole('row')[1] as HTMLElement;
  expect(row.textContent).toBe('Each user half · free40.0\u202fk8002.0\u202f%');
});

test('a tenant sees how its own checks go, and asks for nobody else’s', async () => {
  // /api/v1/status is not foreseen: asking for it would fail.
  const own = tenantStatus({ redis: 'down', degraded_share: 0.4, rules_age_ms: 90_000, share_denied: 0.125 });
  fakeServer(traffic({ [`GET ${base}/status`]: own }));
  const { queries } = open('/t/acme/overview');
  const words = /12 per second in the last 5 minutes, 13\s%\sdenied · 40\s%\sdegraded/;
  expect(await screen.findByText(words)).toBeDefined();
  expect(screen.getByText('failure modes apply')).toBeDefined();
  expect(screen.getByText('loaded 90 s ago')).toBeDefined();
  expect(screen.getByText('Stale')).toBeDefined();
  queries.setQueryData(['tenant', 'acme', 'status'], tenantStatus({ answering: 'down', rules_age_ms: null }));
  expect(await screen.findByText('No process is serving checks.')).toBeDefined();
});

test('before the first full minute of traffic the figures claim no more than they know', async () => {
  const first = tenantStatus({ checks_per_second: 0, share_denied: null });
  fakeServer(traffic({ [`GET ${base}/status`]: first }));
  open('/t/acme/overview');
  expect(await screen.findByText('All systems up')).toBeDefined();
  expect(screen.queryByText(/checks\/s|no checks/)).toBeNull();
});

test('a process that is unwell says what ails it, and one that is missing is missed', async () => {
  fakeServer(
    traffic({
      'GET /api/v1/session': { ...session(), account: account({ platform_admin: true }) },
      'GET /api/v1/status': status([process({ name: 'api-2', redis: 'down' })]),
    }),
  );
  const { queries } = open('/t/acme/overview');
  expect(await screen.findByText('Redis down: failure modes apply')).toBeDefined();
  expect(screen.getByText('Process api-2')).toBeDefined();
  queries.setQueryData(['status'], status([process()]));
  expect(await screen.findByText(/database up · 1 process$/)).toBeDefined();
  queries.setQueryData(['status'], status([]));
  expect(await screen.findByText('No process is serving checks')).toBeDefined();
});

test('a new tenant sees its three next steps instead, those that are done ticked', async () => {
  fakeServer(
    traffic({
      [`GET ${base}/stats/summary`]: summary(verdicts(0, 0)),
      [`GET ${base}/plans`]: page([plan('free')]),
      [`GET ${base}/rules`]: page([rule(), rule({ rule_id: '13', plan: null })]),
      [`GET ${base}/api-keys`]: page([]),
    }),
  );
  open('/t/acme/overview');
  expect(await screen.findByText('2 rules on 1 plan and for all plans.')).toBeDefined();
  expect(screen.getAllByLabelText('Done:')).toHaveLength(1);
  expect(screen.getByRole('link', { name: 'Create a key' }).getAttribute('href')).toBe('/t/acme/settings/keys');
  expect(screen.queryByRole('region', { name: 'Summary' })).toBeNull();
});

test('a quiet hour of a tenant that had traffic is no new tenant', async () => {
  fakeServer(
    traffic({
      [`GET ${base}/stats/summary`]: ({ query }: { query: URLSearchParams }) => {
        const length = Date.parse(query.get('until') ?? '') - Date.parse(query.get('from') ?? '');
        return { json: summary(length > day ? verdicts(5, 0) : verdicts(0, 0)) };
      },
    }),
  );
  open('/t/acme/overview');
  expect(await screen.findByRole('region', { name: 'Summary' })).toBeDefined();
});

test.each([
  ['whose role ended', problem(403, 'forbidden', { detail: 'It takes a viewer.' }), 'You do not have permission'],
  ['with a server that fails', problem(500, 'internal', { title: 'Something broke' }), 'Something broke'],
])('somebody %s is told so', async (_, answer, title) => {
  fakeServer(traffic({ [`GET ${base}/stats/summary`]: () => answer }));
  open('/t/acme/overview');
  expect(await screen.findByRole('heading', { name: title })).toBeDefined();
});

test('a new tenant waits for its first check, and sees it arrive', async () => {
  let checks = summary(verdicts(0, 0));
  fakeServer(
    traffic({
      [`GET ${base}/stats/summary`]: () => ({ json: checks }),
      [`GET ${base}/plans`]: page([plan('free')]),
      [`GET ${base}/rules`]: page([rule()]),
      [`GET ${base}/api-keys`]: page([]),
    }),
  );
  vi.useFakeTimers({ shouldAdvanceTime: true });
  open('/t/acme/overview');
  expect(await screen.findByText('Waiting for the first check …')).toBeDefined();
  expect(screen.getByRole('link', { name: 'can ask instead' }).getAttribute('href')).toBe('/t/acme/settings/gateways');
  checks = summary(verdicts(1, 0));
  await vi.advanceTimersByTimeAsync(6000);
  expect(await screen.findByText('The first check has arrived.')).toBeDefined();
  expect(await screen.findByRole('region', { name: 'Summary' })).toBeDefined();
});

test('once a source is blocked, its row says until when, with what ends that', async () => {
  const [block] = [
    rule({ rule_id: '21', key_pattern: 'ip:198.51.100.0/24', name: 'temporary', plan: null, action: 'block' }),
  ];
  const blocked = { ...block, expires_at: new Date(Date.now() + 3_600_000).toISOString() };
  let saved = [blocked];
  const requests = fakeServer(
    attack({
      [`GET ${base}/rules`]: () => ({ json: page(saved) }),
      [`PATCH ${base}/rules/21`]: () => {
        saved = [];
        return { json: blocked };
      },
    }),
  );
  const { user } = open('/t/acme/overview');
  const table = await screen.findByRole('table', { name: 'Top callers' });
  const end = await within(table).findByRole('button', { name: 'End now' });
  expect(end.closest('tr')?.textContent).toMatch(/198\.51\.100\.0\/24.*Blockeduntil .*End now/);
  await user.click(end);
  await waitFor(() => expect(screen.queryByRole('button', { name: 'End now' })).toBeNull());
  expect(requests.find(({ method }) => method === 'PATCH')?.body).toEqual({ expires_in_seconds: 0 });
});

test('the first rule of a tenant is made in its form', async () => {
  fakeServer(
    traffic({
      [`GET ${base}/stats/summary`]: summary(verdicts(0, 0)),
      [`GET ${base}/plans`]: page([]),
      [`GET ${base}/rules`]: page([]),
      [`GET ${base}/api-keys`]: page([]),
    }),
  );
  open('/t/acme/overview');
  const link = await screen.findByRole('link', { name: 'Create the first rule' });
  expect(link.getAttribute('href')).toBe('/t/acme/rules/new?first=true');
});
