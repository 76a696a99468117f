import { expect, test } from 'vitest';
import { violation } from '../../test/traffic';
import { unitOf } from './rate';
import { whatHappened } from './violation';

const plain = (text: string) => text.replaceAll('\u202f', ' ');

test.each([
  [
    'a limit that was reached',
    violation(),
    'User 42 on free was denied 11 times within 794 ms on GET /api/search. Their bucket for “Each user” ' +
      '(10 per second, bursts to 50) held 0.65 tokens and a request takes 1. It would have been allowed 35 ' +
      'ms later.',
  ],
  [
    'a single check of a shadow rule',
    violation({ mode: 'shadow', count: 1, method: null }),
    'User 42 on free would have been denied on /api/search. Their bucket for “Each user” (10 per second, ' +
      'bursts to 50) held 0.65 tokens and a request takes 1. It would have been allowed 35 ms later. ' +
      'Nothing was denied: the rule is in shadow mode.',
  ],
  [
    'an address that is blocked',
    violation({
      user_id: null,
      plan: null,
      reason: 'blocked',
      scope: 'endpoint',
      key_pattern: 'endpoint:/internal/*',
      endpoint: '/internal/health',
      rate_per_second: 0,
      burst_capacity: 0,
      count: 3,
    }),
    '203.0.113.9 was blocked 3 times within 794 ms on GET /internal/health. The rule “Everything below ' +
      '/internal/” blocks every request that matches. Waiting would not have helped.',
  ],
  [
    'a cost that never fits',
    violation({ reason: 'cost_exceeds_limit', cost: 80, count: 1, retry_after_ms: null }),
    'User 42 on free was denied on GET /api/search. A request took 80 tokens, and their bucket for “Each ' +
      'user” never holds more than 50. Waiting would not have helped.',
  ],
  [
    'a full queue',
    violation({
      algorithm: 'leaky_bucket',
      limit_text: '10 per second through a queue of 50',
      queue_ms: 4935,
      count: 1,
    }),
    'User 42 on free was denied on GET /api/search. The queue of “Each user” (10 per second through a ' +
      'queue of 50) was full, with a delay of 4.9 s. It would have been allowed 35 ms later.',
  ],
  [
    'a queue in which a proxy cannot wait',
    violation({
      algorithm: 'leaky_bucket',
      limit_text: '10 per second through a queue of 50',
      tokens_at_time: 40,
      queue_ms: 1000,
      count: 1,
    }),
    'User 42 on free was denied on GET /api/search. The queue of “Each user” (10 per second through a ' +
      'queue of 50) would have delayed the request by 1 s, and its proxy cannot wait. It would have been ' +
      'allowed 35 ms later.',
  ],
  [
    'an outage of Redis',
    violation({ reason: 'store_unavailable', count: 1, endpoint: null, method: null }),
    'User 42 on free was denied. Redis did not answer, and the rule “Each user” denies until it does.',
  ],
])('%s is said in words', (_, what, sentence) => {
  expect(plain(whatHappened(what))).toBe(sentence);
});

test('a rate without a unit is said in the unit that makes it whole', () => {
  expect([10, 0.1, 10000 / 86400, 1000 / 3600, 0.123456].map(unitOf)).toEqual([
    'second',
    'minute',
    'day',
    'hour',
    'second',
  ]);
});

test('what a rule of another meter denied is said in its unit', () => {
  const budget = {
    meter: 'usd',
    algorithm: 'fixed_window',
    limit_text: '2 USD per month',
    retry_after_ms: null,
  } as const;
  expect(whatHappened(violation({ ...budget, cost: 0, tokens_at_time: 0 }))).toContain(
    'Of the limit “Each user · USD” (2 USD per month) nothing was left.',
  );
  expect(whatHappened(violation({ ...budget, cost: 0.012, tokens_at_time: 0.01 }))).toContain(
    '0.01 USD was left, and a request takes 0.012 USD.',
  );
  expect(
    whatHappened(
      violation({ meter: 'input_tokens', cost: 1200, tokens_at_time: 3, limit_text: '10 input tokens per day' }),
    ),
  ).toContain('held 3 input tokens and a request takes 1,200');
});
