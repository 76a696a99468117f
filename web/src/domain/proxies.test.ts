import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { parse } from 'yaml';
import { proxyFile } from './proxies';
import { proxies } from './snippets';

const paths = { nginx: 'nginx/sluice.conf', caddy: 'caddy/Caddyfile', envoy: 'envoy/envoy.yaml' };
const tested = (proxy: keyof typeof paths) =>
  readFileSync(join(import.meta.dirname, '../../../deploy/examples', paths[proxy]), 'utf8').trimEnd();

test.each(proxies)('$label: the file that is shown is the one that is tested', ({ value }) => {
  expect(proxyFile(value, 'https://limits.example.com')).toEqual({ code: tested(value), hasAddress: false });
  if (value === 'envoy') return;
  const replaced = tested(value).replaceAll('127.0.0.1:8080', 'limits:80').replaceAll('slk_YOUR_KEY', 'slk_1');
  expect(proxyFile(value, 'http://limits', 'slk_1')).toEqual({ code: replaced, hasAddress: true });
});

test.each([
  ['http://10.0.0.7:8080', '10.0.0.7', 8080],
  ['http://limits.internal', 'limits.internal', 80],
  ['http://[2001:db8::1]:81', '2001:db8::1', 81],
])('Envoy is told the address of %s and of nothing else', (url, address, port_value) => {
  const { static_resources: shown } = parse(proxyFile('envoy', url, 'slk_1').code);
  const { static_resources: saved } = parse(tested('envoy'));
  const addresses = ({ clusters }: typeof shown) =>
    clusters.map((cluster: typeof shown) => cluster.load_assignment.endpoints[0].lb_endpoints[0].endpoint.address);
  expect(addresses(shown)).toEqual([addresses(saved)[0], { socket_address: { address, port_value } }]);
  expect(JSON.stringify(shown)).toContain('"slk_1"');
});
