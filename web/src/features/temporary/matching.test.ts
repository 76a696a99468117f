import { expect, test } from 'vitest';
import { rule } from '../../../test/fake';
import { matching, opened } from './matching';

const bypass = { action: 'bypass', mode: 'enforce', is_active: true, expires_at: null, plan: null } as const;

test.each([
  ['user', '42', 'user:42', 'all of this group'],
  ['user', '42', 'user:{user_id}', 'all'],
  ['user', '42', 'global', 'all'],
  ['user', '42', 'user:42:endpoint:/api/search', 'some'],
  ['user', '42', 'user:4', undefined],
  ['user', '42', 'endpoint:/health', undefined],
  ['ip', '203.0.113.9', 'ip:203.0.113.0/24', 'all'],
  ['ip', '203.0.113.9', 'ip:203.0.114.0/24', undefined],
  ['ip', '203.0.113.9', 'ip:"2001:db8::/32"', undefined],
  ['network', '203.0.113.0/24', 'ip:203.0.113.0/24', 'all of this group'],
  ['network', '203.0.113.0/24', 'ip:203.0.113.9', 'some'],
  ['endpoint', '/api/search', 'endpoint:/api/*', 'all'],
  ['endpoint', '/api/search', 'endpoint:GET /api/search', 'some'],
] as const)('of %s %s, %s lets through: %s', (by, value, key_pattern, want) => {
  const [found] = matching([rule({ ...bypass, key_pattern })], { by, value }, 'bypass');
  const got = found && `${found.partly ? 'some' : 'all'}${found.own ? ' of this group' : ''}`;
  expect(got).toBe(want);
});

test('a rule of a plan lets some through, and comes after those that let all through', () => {
  const rules = [
    rule({ ...bypass, rule_id: '1', key_pattern: 'user:42', plan: 'pro' }),
    rule({ ...bypass, rule_id: '2', key_pattern: 'user:42' }),
  ];
  const found = matching(rules, { by: 'user', value: '42' }, 'bypass');
  expect(found.map((one) => [one.rule.rule_id, one.partly])).toEqual([
    ['2', false],
    ['1', true],
  ]);
});

test('what is off or blocks lets nothing through', () => {
  const key_pattern = 'user:42';
  const rules = [rule({ ...bypass, key_pattern, is_active: false }), rule({ ...bypass, key_pattern, action: 'block' })];
  expect(matching(rules, { by: 'user', value: '42' }, 'bypass')).toEqual([]);
});

test.each([
  ['endpoint:/internal/*', true],
  ['ip:203.0.113.0/24', true],
  ['user:7', true], // from this address
  ['ip:198.51.100.0/24', false],
])('letting an address through opens what %s blocks: %s', (key_pattern, opens) => {
  const rules = [rule({ ...bypass, action: 'block', key_pattern })];
  expect(opened(rules, { by: 'ip', value: '203.0.113.9' })).toEqual(opens ? rules : []);
  const [first] = rules;
  if (first) expect(opened([{ ...first, mode: 'shadow' }], { by: 'ip', value: '203.0.113.9' })).toEqual([]);
});
