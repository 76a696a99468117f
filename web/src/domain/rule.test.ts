import { expect, test } from 'vitest';
import { identityLabel, ruleLabel, ruleTitle } from './rule';

test.each([
  [{ key_pattern: 'user:{user_id}:endpoint:/api/reports', name: '', plan: null }, 'Each user on /api/reports'],
  [{ key_pattern: 'ip:203.0.113.9', name: 'temporary', plan: null }, 'Address 203.0.113.9 · temporary'],
  [{ key_pattern: 'endpoint:/internal/*', name: '', plan: null }, 'Everything below /internal/'],
  [{ key_pattern: 'user:{user_id}', name: 'usd', meter: 'usd', plan: null }, 'Each user · USD'],
  [{ key_pattern: 'user:{user_id}', name: 'monthly', meter: 'usd', plan: null }, 'Each user · USD · monthly'],
  [{ key_pattern: 'user:{user_id}', name: 'requests', meter: 'requests', plan: null }, 'Each user · requests'],
])('%o is called %s', (rule, title) => {
  expect(ruleTitle(rule)).toBe(title);
});

test('in a list, a rule has its plan and its state too', () => {
  const rule = { key_pattern: 'user:{user_id}', name: 'daily', plan: 'pro' };
  expect(ruleLabel({ ...rule, mode: 'shadow' })).toBe('Each user · daily · pro · shadow');
  expect(ruleLabel({ ...rule, name: '', plan: null, is_active: false })).toBe('Each user · all plans · off');
});

test.each([
  ['user:{user_id}', 'Each user · all plans'],
  ['user:{user_id} [pro]', 'Each user · pro'],
  ['user:{user_id} [pro] per day', 'Each user · per day · pro'],
  ['endpoint:POST /v1/charges [pro] daily', 'Requests to POST /v1/charges · daily · pro'],
  ['user:"Jane Doe" [pro]', 'User Jane Doe · pro'],
  ['ip:{ip} daily [x]', 'Each IP address · daily [x] · all plans'],
])('the rule that the server calls %s is called %s', (identity, label) => {
  expect(identityLabel(identity)).toBe(label);
});
