import { describe, expect, test } from 'vitest';
import { parsePattern, patternInWords, printPattern, scopeOf, splitsByUser } from './pattern';

describe('a pattern is printed as it was read', () => {
  test.each([
    'global',
    'user:{user_id}',
    'user:42',
    'user:"a:b"',
    'user:"{user_id}"',
    'user:"say ""hi"""',
    'user:{user_id}:endpoint:/api/search',
    'user:{user_id}:attr.model:gpt-x',
    'attr.org:{attr.org}',
    'endpoint:/api/*',
    'endpoint:{endpoint}',
    'endpoint:POST /v1/charges',
    'endpoint:POST "/v1/charges:capture"',
    'endpoint:"/users/:id/"*',
    'endpoint:"/files/*name"',
    'endpoint:/users/{id}',
    'ip:{ip}',
    'ip:203.0.113.0/24',
    'ip:"2001:db8::/32"',
    'endpoint:/api/search:user:{user_id}',
  ])('%s', (text) => {
    const parsed = parsePattern(text);
    expect(parsed.error).toBeUndefined();
    expect(printPattern(parsed.segments ?? [])).toBe(text);
  });
});

test('segments come in the one order the server prints', () => {
  const parsed = parsePattern('user:{user_id}:ip:{ip}:endpoint:/a:attr.b:x');
  expect(printPattern(parsed.segments ?? [])).toBe('user:{user_id}:attr.b:x:endpoint:/a:ip:{ip}');
  expect(scopeOf(parsePattern('attr.org:{attr.org}').segments ?? [])).toBe('user');
});

describe('what is no pattern says why', () => {
  test.each([
    ['', /Choose what/],
    ['user', /Expected ':'/],
    ['users:42', /Expected user, endpoint/],
    ['user:', /value is missing/],
    ['user:{id}', /takes \{user_id\}/],
    ['user:42:user:43', /given twice/],
    ['user:42:global', /stands alone/],
    ['user:"42', /closing quote/],
    ['user:"42"x', /Expected ':' or the end/],
    ['endpoint:/a*', /star stands at the end/],
    ['endpoint:GET {endpoint}', /without a method/],
    ['endpoint:get /a', /capital letters/],
    [`user:${'x'.repeat(600)}`, /at most 512/],
  ])('%s', (text, message) => {
    expect(parsePattern(text).error).toMatch(message);
  });
});

test.each([
  ['user:{user_id}', 'Each user'],
  ['user:42', 'User 42'],
  ['user:{user_id}:endpoint:POST /v1/charges', 'Each user on POST /v1/charges'],
  ['endpoint:/api/*', 'Everything below /api/ together'],
  ['endpoint:{endpoint}', 'Each endpoint'],
  ['endpoint:/api/search', 'Requests to /api/search together'],
  ['global', 'All requests together'],
  ['ip:{ip}', 'Each IP address'],
  ['ip:203.0.113.0/24', 'Addresses in 203.0.113.0/24 together'],
  ['attr.org:{attr.org}', 'Each org'],
  ['user:{user_id}:attr.model:gpt-x', 'Each user with model gpt-x'],
  ['nonsense', 'nonsense'],
])('%s in words', (text, words) => {
  expect(patternInWords(text)).toBe(words);
});

test('only a pattern with {user_id} can be overridden for a user', () => {
  expect(splitsByUser('endpoint:/a:user:{user_id}')).toBe(true);
  expect(splitsByUser('user:42')).toBe(false);
  expect(splitsByUser('user:"{user_id}"')).toBe(false);
});
