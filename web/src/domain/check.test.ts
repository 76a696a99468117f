import { expect, test } from 'vitest';
import { explanation, matched } from '../../test/explain';
import { checkOf, costProblem, matchedTiers, statusOf, verdict } from './check';

test('what was left empty is no part of the check', () => {
  expect(checkOf({})).toEqual({});
  expect(checkOf({ user: '42', cost: '0', attributes: 'org=acme&model=gpt-x' })).toEqual({
    user_id: '42',
    cost: 0,
    attributes: { org: 'acme', model: 'gpt-x' },
  });
});

test('costs of other meters go with that of requests', () => {
  expect(checkOf({ cost: '2', costs: 'input_tokens=1200&usd=0.012' })).toEqual({
    costs: { requests: 2, input_tokens: 1200, usd: 0.012 },
  });
  expect(checkOf({ costs: 'usd=1' })).toEqual({ costs: { usd: 1 } });
});

test('a user id of digits stays a text, however long', () => {
  expect(checkOf({ user: '12345678901234567890' }).user_id).toBe('12345678901234567890');
});

test.each(['', '0', '1', '2.5', '0.000001', '1000000000'])('the cost "%s" is one', (text) => {
  expect(costProblem(text)).toBeUndefined();
});
test.each(['-1', 'many', '0.0000001', '1000000001', '1e3'])('the cost "%s" is none', (text) => {
  expect(costProblem(text)).toMatch(/must be a number/);
});

test('each matched rule has its own tier, and one decides', () => {
  const denied = explanation({ allowed: false, violated_rule_id: 12, reason: 'limit_exceeded' }, [
    matched(3, { key_pattern: 'global' }),
    matched(12),
  ]);
  expect(matchedTiers(denied).map(({ rule, decides }) => [rule.rule_id, decides])).toEqual([
    [3, false],
    [12, true],
  ]);
});

test.each([
  [{ allowed: true, remaining: 3, limit: 50 }, 200, /3 of 50 tokens left/],
  [{ allowed: true, remaining: null, limit: null }, 200, /No rule limits this check/],
  [{ allowed: false, reason: 'limit_exceeded', retry_after_ms: 350 }, 429, /would be allowed in 350\u202fms/],
  [{ allowed: false, reason: 'blocked', retry_after_ms: null }, 429, /Blocked by/],
  [{ allowed: false, reason: 'cost_exceeds_limit', retry_after_ms: null }, 429, /higher than the bucket/],
  [{ allowed: false, reason: 'store_unavailable', retry_after_ms: 1000 }, 503, /Redis is not responding/],
] as const)('the decision %o is said in a sentence', (decision, status, sentence) => {
  const answer = explanation({ violated_rule: 'user:{user_id}', ...decision });
  expect(statusOf(answer).code).toBe(status);
  expect(verdict(answer)).toMatch(sentence);
});

test('where everything that matches is in shadow, no rule is said to be missing', () => {
  expect(verdict(explanation({ limit: null, remaining: null }, [matched(12, { mode: 'shadow' })]))).toBe(
    'All matching rules are in shadow mode. They report, and deny nothing.',
  );
});

test('a bypass is said to be one', () => {
  expect(verdict(explanation({ limit: null, remaining: null }, [matched(2, { action: 'bypass' })]))).toMatch(
    /No other rule applies/,
  );
});

test('a verdict says what the rule counts', () => {
  const rules = [matched(3), matched(4, { meter: 'input_tokens', name: 'input_tokens' })];
  const denial = { allowed: false, violated_rule: 'user:{user_id}', violated_rule_id: 4, retry_after_ms: 35 };
  expect(verdict(explanation(denial, rules))).toMatch(/^user:\{user_id\} \(input tokens\) has too little left/);
  expect(verdict(explanation({}, rules))).toMatch(/50 of 50 tokens left/);
  expect(verdict(explanation({}, rules.slice(1)))).toMatch(/50 of 50 input tokens left/);
});
