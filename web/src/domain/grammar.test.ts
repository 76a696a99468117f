import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { parsePattern, printPattern, scopeOf, splitsByUser } from './pattern';
import { isValid, type Limit, limitSentence, parseRate, type RateUnit } from './rate';
import { parseDuration, parseWindow } from './window';

const cases: {
  patterns: { text: string; prints?: string; scope: string; splits_by_user?: boolean }[];
  rates: { text: string; per_second: number; unit: RateUnit; burst: number; limit: string }[];
  invalid_rates: string[];
  durations: { text: string; seconds: number }[];
  invalid_durations: { text: string; error: string }[];
  windows: { text: string; seconds?: number; calendar?: string; prints?: string }[];
  invalid_windows: { text: string; error: string }[];
  limits: (Omit<Limit, 'burst_capacity'> & { rate?: string; burst: number; describes: string })[];
} = JSON.parse(readFileSync('../internal/rules/testdata/grammar.json', 'utf8'));

describe('patterns are read as the server prints them', () => {
  test.each(cases.patterns)('$text', ({ text, prints = text, scope, splits_by_user = false }) => {
    const parsed = parsePattern(prints);
    expect(parsed.error).toBeUndefined();
    expect(printPattern(parsed.segments ?? [])).toBe(prints);
    expect(scopeOf(parsed.segments ?? [])).toBe(scope);
    expect(splitsByUser(prints)).toBe(splits_by_user);
  });

  test.each(['', 'user', 'user:', 'user:a:user:b', 'user:{ip}', 'team:a', 'user:a:'])('%j is no pattern', (text) => {
    expect(parsePattern(text).error).toBeDefined();
  });
});

describe('rates are read and described as the server does', () => {
  test.each(cases.rates)('$text', ({ text, per_second, unit, burst, limit }) => {
    const rate = parseRate(text, 'second');
    expect(rate).toEqual({ rate_per_second: per_second, rate_unit: unit });
    expect(limitSentence({ rate_per_second: per_second, rate_unit: unit, burst_capacity: burst })).toBe(limit);
  });

  test.each(cases.invalid_rates)('%j is refused', (text) => {
    expect(parseRate(text, 'second')).toBeNull();
  });
});

describe('durations and windows are read as the server reads them', () => {
  test.each(cases.durations)('$text', ({ text, seconds }) => {
    expect(parseDuration(text)).toEqual({ seconds });
  });

  test.each(cases.invalid_durations)('$text is no duration', ({ text, error }) => {
    expect(parseDuration(text)).toEqual({ error });
  });

  test.each(cases.windows)('$text', ({ text, seconds, calendar }) => {
    expect(parseWindow(text)).toEqual(calendar ? { calendar } : { seconds });
  });

  test.each(cases.invalid_windows)('$text is no window', ({ text, error }) => {
    expect(parseWindow(text)).toEqual({ error });
  });
});

test.each(cases.limits)('a limit is described as the server describes it: $describes', (one) => {
  const { rate, burst, describes, ...shape } = one;
  const amounts = (rate && parseRate(rate, 'second')) || { rate_per_second: 0, rate_unit: 'second' as const };
  const limit = { ...amounts, ...shape, burst_capacity: burst };
  expect(limitSentence(limit).replaceAll('\u202f', ' ')).toBe(describes);
  expect(isValid(limit)).toBe(true);
});
