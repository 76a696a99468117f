import { describe, expect, test } from 'vitest';
import { parsePattern } from './pattern';
import { examples, inNetwork, matchRequest, type Request } from './requests';

const request: Request = {
  user: '42',
  method: 'GET',
  endpoint: '/api/search',
  ip: '203.0.113.9',
  attributes: { org: 'acme' },
};

function match(pattern: string, more: Request = {}) {
  const { bucket, reason } = matchRequest(parsePattern(pattern).segments ?? [], { ...request, ...more });
  return bucket ?? reason;
}

test.each([
  ['global', 'all matching requests'],
  ['user:{user_id}', 'user 42'],
  ['user:42', 'all matching requests'],
  ['user:43', 'another user'],
  ['endpoint:/api/*', 'all matching requests'],
  ['endpoint:/api', 'another endpoint'],
  ['endpoint:POST /api/search', 'another method'],
  ['ip:203.0.113.0/24', 'all matching requests'],
  ['ip:198.51.100.0/24', 'another IP address'],
  ['attr.org:{attr.org}:user:{user_id}', 'user 42, org acme'],
  ['attr.model:{attr.model}', 'no model'],
])('%s', (pattern, outcome) => {
  expect(match(pattern)).toBe(outcome);
});

test('what is below a path is not the path itself', () => {
  expect(match('endpoint:/api/*', { endpoint: '/api' })).toBe('another endpoint');
  expect(match('endpoint:/api/*', { endpoint: '/api/' })).toBe('all matching requests');
});

describe('networks', () => {
  test.each([
    ['10.0.0.0/8', '10.255.0.1', true],
    ['10.0.0.0/8', '11.0.0.1', false],
    ['2001:db8::/32', '2001:db8:1::1', true],
    ['2001:db8::/32', '2001:db9::1', false],
    ['2001:db8::1', '2001:db8:0:0::1', true],
    ['203.0.113.0/24', '::ffff:203.0.113.9', true],
    ['0.0.0.0/0', '2001:db8::1', false],
    ['10.0.0.0/8', 'nonsense', false],
  ])('%s holds %s: %s', (network, address, holds) => {
    expect(inNetwork(network, address)).toBe(holds);
  });
});

test('examples begin with a request that matches and end with one that does not', () => {
  for (const pattern of ['user:{user_id}', 'endpoint:/api/*', 'user:{user_id}:endpoint:POST /v1/charges']) {
    const shown = examples(parsePattern(pattern).segments ?? []);
    expect(shown[0]?.bucket, pattern).not.toBeNull();
    expect(shown.at(-1)?.bucket, pattern).toBeNull();
  }
});
