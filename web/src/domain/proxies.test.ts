import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { parse } from 'yaml';
import { proxyFiles } from './proxies';
import { proxies } from './snippets';

const tested = (proxy: string) => (name: string) =>
  readFileSync(join(import.meta.dirname, '../../../deploy/examples', proxy, name), 'utf8');

test.each(proxies)('$label: the files that are shown are those that are tested', ({ value }) => {
  for (const { name, code } of proxyFiles(value, 'https://limits.example.com')) {
    expect(code).toBe(tested(value)(name));
  }
  if (value === 'envoy') return;
  for (const { name, code } of proxyFiles(value, 'http://limits', 'slk_1')) {
    expect(code).toBe(
      tested(value)(name).replaceAll('127.0.0.1:8080', 'limits:80').replaceAll('slk_YOUR_KEY', 'slk_1'),
    );
  }
});

test.each([
  ['http://10.0.0.7:8080', '10.0.0.7', 8080],
  ['http://limits.internal', 'limits.internal', 80],
  ['http://[2001:db8::1]:81', '2001:db8::1', 81],
])('Envoy is told the address of %s and of nothing else', (url, address, port_value) => {
  const { static_resources: shown } = parse(proxyFiles('envoy', url, 'slk_1')[0]?.code ?? '');
  const { static_resources: saved } = parse(tested('envoy')('envoy.yaml'));
  const addresses = ({ clusters }: typeof shown) =>
    clusters.map((cluster: typeof shown) => cluster.load_assignment.endpoints[0].lb_endpoints[0].endpoint.address);
  expect(addresses(shown)).toEqual([addresses(saved)[0], { socket_address: { address, port_value } }]);
  expect(JSON.stringify(shown)).toContain('"slk_1"');
});

const mapping = {
  user: { header: 'X-User', plain: true },
  plan: { header: 'x-plan' },
  costs: { input_tokens: { header: 'X-Tokens' } },
  attributes: { org: { header: 'X-PLAN' }, odd: { header: "X'Odd" }, host: { header: 'Host' } },
  endpoint: { header: 'X-Original-Uri', method_header: 'X-Forwarded-Method' },
  jwt: { jwks: '{}' },
  address: { header: 'X-Real-Ip', trusted_hops: 1 },
};
const made = (proxy: 'nginx' | 'caddy' | 'haproxy' | 'envoy') =>
  proxyFiles(proxy, 'http://limits', undefined, mapping)
    .map(({ code }) => code)
    .join('\n');

test.each(proxies)('$label: names that the file cannot have are in a comment', ({ value }) => {
  const lines = made(value).split('\n');
  expect(lines.filter((line) => line.includes("X'Odd") && !/^\s*(#|--)/.test(line))).toEqual([]);
  expect(made(value)).toContain("X'Odd");
});

test('visitors say who they are, the request what it is, and nobody else’s plan', () => {
  expect(
    made('nginx').match(
      /(?:# )?proxy_set_header (?:X-User \$|X-Original|X-Real|x-plan|X-Tokens|X-PLAN|Authorization|Host).*/g,
    ),
  ).toEqual([
    'proxy_set_header Host $host;',
    'proxy_set_header Host sluice;',
    'proxy_set_header X-Original-Uri $request_uri;',
    '# proxy_set_header X-Real-Ip …; # for you to set, never visitors',
    'proxy_set_header Authorization $http_authorization;',
    'proxy_set_header X-User $http_x_user;',
    '# proxy_set_header x-plan …; # for you to set, never visitors',
    '# proxy_set_header X-Tokens …; # for you to set, never visitors',
  ]);
  expect(made('nginx').match(/X-Forwarded-For .*/g)).toEqual([
    'X-Forwarded-For $proxy_add_x_forwarded_for;',
    'X-Forwarded-For $proxy_add_x_forwarded_for;',
  ]);
  expect(made('caddy')).toContain('request_header -x-plan');
  expect(made('caddy')).toContain('header_up X-Original-Uri {uri}');
  expect(made('haproxy').match(/\["(?:x-user|x-plan|x-original-uri)"\] = .*/g)).toEqual([
    '["x-original-uri"] = { txn.f:pathq() },',
    '["x-user"] = { txn.f:req_fhdr("x-user") },',
    '["x-plan"] = { … }, for you to set, never visitors',
  ]);
  const { static_resources: envoy } = parse(made('envoy'));
  const { http_filters } = envoy.listeners[0].filter_chains[0].filters[0].typed_config;
  expect(http_filters[0].typed_config.allowed_headers.patterns).toEqual([
    { exact: 'x-forwarded-for' },
    { exact: 'authorization' },
    { exact: 'x-user' },
  ]);
});

test('X-User is removed for the app after Sluice was asked', () => {
  expect(made('nginx')).toContain('proxy_set_header X-User "";');
  for (const [proxy, removes, asks] of [
    ['caddy', 'request_header -X-User', 'forward_auth'],
    ['haproxy', 'http-request del-header X-User', 'http-request lua.sluice'],
  ] as const) {
    expect(made(proxy).split(removes)).toHaveLength(2);
    expect(made(proxy).indexOf(removes)).toBeGreaterThan(made(proxy).indexOf(asks));
  }
  expect(made('envoy')).toContain('request_headers_to_remove: [x-user, x-sluice-key]');
});

test.each(['l', '', 'limits.example.com', 'https://limits', 'http://limits/below'])('%s stands in no file', (url) => {
  expect(proxyFiles('nginx', url)[0]?.code).toBe(tested('nginx')('sluice.conf'));
});
