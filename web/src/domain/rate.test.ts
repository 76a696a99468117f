import { describe, expect, test } from 'vitest';
import {
  likelyBurst,
  limitProblems,
  limitSentence,
  parseRate,
  perSecond,
  perUnit,
  type Rate,
  type RateUnit,
  rateShort,
  times,
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

  test('a rate that misses its number by the last bit is shown as that number, in its unit', () => {
    const day = { rate_per_second: (1000 / 86400) * 10, rate_unit: 'day' as RateUnit };
    expect(day.rate_per_second).not.toBe(10_000 / 86400);
    expect(perUnit(day)).toEqual({ number: 10_000, unit: 'day' });
    expect(perUnit({ rate_per_second: (10 / 60) * 10, rate_unit: 'minute' }).number).toBe(100);
  });

  test('a rate that is no short number keeps its unit', () => {
    const { number, unit } = perUnit({ rate_per_second: Math.PI, rate_unit: 'hour' });
    expect(unit).toBe('hour');
    expect(number).toBeCloseTo(Math.PI * 3600, 10);
  });
});

test.each([
  [10, 'minute', 10, 100],
  [1000, 'day', 10, 10_000],
  [0.1, 'second', 3, 0.3],
  [7, 'hour', 2, 14],
] as const)('%d per %s, %d times, is %d', (number, unit, factor, product) => {
  const limit = { rate_per_second: perSecond(number, unit), rate_unit: unit, burst_capacity: 5 };
  expect(times(limit, factor)).toEqual({
    rate_per_second: perSecond(product, unit),
    rate_unit: unit,
    burst_capacity: 5 * factor,
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
    ['0,5/s', 0.5, 'second'],
    ['1,25 per minute', 1.25, 'minute'],
    ['0,500/s', 0.5, 'second'],
    ['12,345.5/h', 12345.5, 'hour'],
    ['1 000/d', 1000, 'day'],
    ['1 000 000/d', 1e6, 'day'],
  ] as const)('%s', (text, number, unit) => {
    expect(parseRate(text, 'minute')).toEqual({ rate_per_second: perSecond(number, unit), rate_unit: unit });
  });
  test.each([
    '',
    'ten',
    '10/week',
    '10/',
    '-1',
    '1e9',
    '1.2.3',
    '5o/s',
    '1.000,5/s',
    '1,00,0/s',
    '1,2,3',
    '10,0000,000/s',
    '5pers',
  ])('%s is none', (text) => {
    expect(parseRate(text, 'second')).toBeNull();
  });
});

test.each([
  ['10/s', 10],
  ['600/min', 10],
  ['864000/day', 10],
  ['1500/s', 1500],
  ['1/s', 5],
  ['60/min', 5],
  ['6/min', 5],
  ['1000/day', 5],
  ['3/hour', 3],
  ['1/hour', 1],
  ['1/day', 1],
])('a rate of %s that is typed without a burst bursts to %i', (text, burst) => {
  expect(likelyBurst(parseRate(text, 'second') as Rate)).toBe(burst);
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
