import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { parsePattern, printPattern, scopeOf, splitsByUser } from './pattern';
import { limitSentence, parseRate, type RateUnit } from './rate';

/** What patterns and rates mean here and on the server, whose tests read the file too. */
const cases: {
  patterns: { text: string; prints?: string; scope: string; splits_by_user?: boolean }[];
  invalid_patterns: { text: string; error: string }[];
  rates: { text: string; per_second: number; unit: RateUnit; burst: number; limit: string }[];
  invalid_rates: string[];
} = JSON.parse(readFileSync('../internal/rules/testdata/grammar.json', 'utf8'));

describe('patterns are read as the server reads them', () => {
  test.each(cases.patterns)('$text', ({ text, prints = text, scope, splits_by_user = false }) => {
    const parsed = parsePattern(text);
    expect(parsed.error).toBeUndefined();
    expect(printPattern(parsed.segments ?? [])).toBe(prints);
    expect(scopeOf(parsed.segments ?? [])).toBe(scope);
    expect(splitsByUser(text)).toBe(splits_by_user);
  });

  test.each(cases.invalid_patterns)('$text is refused', ({ text, error }) => {
    expect(parsePattern(text).error).toBe(error);
  });
});

describe('rates are read and described as the server does', () => {
  test.each(cases.rates)('$text', ({ text, per_second, unit, burst, limit }) => {
    const rate = parseRate(text, 'second');
    expect(rate).toEqual({ rate_per_second: per_second, rate_unit: unit });
    expect(limitSentence({ rate_per_second: per_second, rate_unit: unit, burst_capacity: burst })).toBe(
      limit,
    );
  });

  test.each(cases.invalid_rates)('%j is refused', (text) => {
    expect(parseRate(text, 'second')).toBeNull();
  });
});
