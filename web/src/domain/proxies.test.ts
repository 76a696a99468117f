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

/* That they work in nginx, Caddy and HAProxy is seen in e2e/gateways.test.ts. */
test('a mapping’s headers are handed on, each once, and only names that a file can have', () => {
  const mapping = {
    user: { header: 'X-User' },
    plan: { header: 'x-plan' },
    attributes: { org: { header: 'X-PLAN' }, odd: { header: "X'Odd" } },
    endpoint: { header: 'X-Forwarded-Uri' },
    jwt: { jwks: '{}' },
    address: { trusted_hops: 1 },
  };
  const of = (proxy: 'nginx' | 'caddy' | 'haproxy' | 'envoy') =>
    proxyFiles(proxy, 'http://limits', undefined, mapping)
      .map(({ code }) => code)
      .join('\n');
  for (const proxy of proxies) {
    expect(of(proxy.value)).not.toContain("'Odd");
  }
  expect(of('nginx').match(/proxy_set_header \S+ \$http_(?!upgrade).*/g)).toEqual([
    'proxy_set_header X-User $http_x_user;',
    'proxy_set_header X-PLAN $http_x_plan;',
    'proxy_set_header Authorization $http_authorization;',
  ]);
  expect(of('nginx').match(/X-Forwarded-For .*/g)).toEqual([
    'X-Forwarded-For $proxy_add_x_forwarded_for;',
    'X-Forwarded-For $proxy_add_x_forwarded_for;',
  ]);
  expect(of('nginx')).not.toContain('X-User ""');
  expect(of('caddy')).not.toContain('-X-User');
  expect(of('caddy')).toContain('trusted_proxies private_ranges');
  expect(of('haproxy').match(/\["x-plan"\] = .*/g)).toEqual(['["x-plan"] = { txn.f:req_fhdr("x-plan") },']);
  const { static_resources: envoy } = parse(of('envoy'));
  const { http_filters } = envoy.listeners[0].filter_chains[0].filters[0].typed_config;
  expect(http_filters[0].typed_config.allowed_headers.patterns).toEqual([
    { exact: 'x-forwarded-for' },
    { exact: 'x-user' },
    { exact: 'x-plan' },
    { exact: 'authorization' },
  ]);
});
