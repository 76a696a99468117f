import { describe, expect, test } from 'vitest';
import {
  limitProblems,
  limitSentence,
  parseRate,
  perSecond,
  perUnit,
  type RateUnit,
  rateShort,
  unitOf,
  units,
} from './rate';

describe('what was typed is what is shown', () => {
  const numbers = [1, 3, 7, 10, 0.1, 0.5, 1000, 12345, 99.99, 1e9];
  test.each(units)('per %s', (unit) => {
    for (const number of numbers) {
      expect(perUnit({ rate_per_second: perSecond(number, unit), rate_unit: unit })).toEqual({
        number,
        unit,
      });
    }
  });

  test('a rate that no number per its unit gives is shown per second', () => {
    const rate = { rate_per_second: 0.1 + Number.EPSILON / 16, rate_unit: 'day' as RateUnit };
    const shown = perUnit(rate);
    expect(perSecond(shown.number, shown.unit)).toBe(rate.rate_per_second);
  });
});

test('limits read as people say them', () => {
  expect(limitSentence({ rate_per_second: 10, rate_unit: 'second', burst_capacity: 50 })).toBe(
    '10 per second, bursts to 50',
  );
  expect(limitSentence({ rate_per_second: 1000 / 86400, rate_unit: 'day', burst_capacity: 1000 })).toBe(
    '1,000 per day, bursts to 1,000',
  );
  expect(rateShort({ rate_per_second: 0.5 / 60, rate_unit: 'minute' })).toBe('0.5/min');
});

test.each([
  [10, 'second'],
  [0.1, 'minute'],
  [10_000 / 86400, 'day'],
  [1 / 3600, 'hour'],
  [0.123, 'second'],
] as const)('%d tokens per second were probably typed per %s', (rate, unit) => {
  expect(unitOf(rate)).toBe(unit);
});

describe('typed rates', () => {
  test.each([
    ['10', 10, 'minute'],
    ['1,000/day', 1000, 'day'],
    ['5 per second', 5, 'second'],
    ['600 / m', 600, 'minute'],
    ['2/h', 2, 'hour'],
    ['.5/s', 0.5, 'second'],
  ] as const)('%s', (text, number, unit) => {
    expect(parseRate(text, 'minute')).toEqual({ rate_per_second: perSecond(number, unit), rate_unit: unit });
  });
  test.each(['', 'ten', '10/week', '10/', '-1', '1e9', '1.2.3'])('%s is none', (text) => {
    expect(parseRate(text, 'second')).toBeNull();
  });
});

test('a limit is judged as the server judges it', () => {
  const limit = (rate: number, burst: number) => ({
    rate_per_second: rate,
    rate_unit: 'second' as const,
    burst_capacity: burst,
  });
  expect(limitProblems(limit(10, 50))).toEqual({});
  expect(limitProblems(limit(0, 50)).rate).toMatch(/0.000001/);
  expect(limitProblems(limit(Number.NaN, 50)).rate).toBeDefined();
  expect(limitProblems(limit(10, 0)).burst).toMatch(/whole number/);
  expect(limitProblems(limit(10, 1.5)).burst).toMatch(/whole number/);
  expect(limitProblems(limit(1e-6, 32)).burst).toMatch(/at most 31 /);
});
