import { expect, test } from 'vitest';
import { rule } from '../../../test/fake';
import { suggestedThreshold } from './draft';

const window = { algorithm: 'fixed_window', rate_per_second: 0 } as const;

test.each([
  ['as many as the rule allows in five minutes', { rate_per_second: 0.1, burst_capacity: 3 }, 30],
  ['a thousand for a large limit', { rate_per_second: 100 }, 1000],
  ['ten for a tiny one', { rate_per_second: 1 / 3600 }, 10],
  ['the whole of a long window', { ...window, window: 'month', burst_capacity: 200 }, 200],
  ['all the windows of five minutes', { ...window, window: '2m', burst_capacity: 40 }, 100],
  ['a thousand for a window of a second', { ...window, window: '1s', burst_capacity: 100 }, 1000],
  ['a thousand for places', { algorithm: 'concurrency', rate_per_second: 0, burst_capacity: 20 }, 1000],
] as const)('a new alert begins with %s', (_, limit, threshold) => {
  expect(suggestedThreshold(rule(limit))).toBe(threshold);
});

test('without a rule it begins with a thousand', () => {
  expect(suggestedThreshold(undefined)).toBe(1000);
});
