import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { duration, exactTime, percent, perMinuteText, relative, shortNumber, zoneOf } from './format';

const { spoken }: { spoken: { ms: number; says: string; exactly?: string }[] } = JSON.parse(
  readFileSync('../internal/rules/testdata/grammar.json', 'utf8'),
);

const spaced = (text: string) => text.replaceAll('\u202f', ' ');

test.each([
  [0, '0'],
  [999, '999'],
  [9999, '9,999'],
  [12_408, '12.4 k'],
  [123_456, '123 k'],
  [999_960, '1.0 M'],
  [2_500_000, '2.5 M'],
  [-12_408, '-12.4 k'],
  [0.655, '0.66'],
])('the number %d', (value, text) => {
  expect(spaced(shortNumber(value))).toBe(text);
});

test.each(spoken)('$ms ms: $says', ({ ms, says, exactly = says }) => {
  expect(spaced(duration(ms))).toBe(says);
  if (ms >= 1000 && ms % 1000 === 0) expect(spaced(duration(ms, true))).toBe(exactly);
});

test('what never ends, and what is over', () => {
  expect(duration(Number.POSITIVE_INFINITY)).toBe('for ever');
  expect(spaced(duration(-90_000))).toBe('−90 s');
});

test('a small rate is not called none', () => {
  expect([0, 0.02, 0.4, 12.4, 3456.7, 12_408].map((rate) => spaced(perMinuteText(rate)))).toEqual([
    '0 per minute',
    'less than 0.1 per minute',
    '0.4 per minute',
    '12 per minute',
    '3,457 per minute',
    '12.4 k per minute',
  ]);
});

test('times are relative', () => {
  const now = Date.parse('2026-11-21T06:00:00Z');
  expect(spaced(relative(now - 3 * 60_000, now))).toBe('3 min ago');
  expect(spaced(relative(now - 90_000, now))).toBe('2 min ago');
  expect(spaced(relative(now + 2 * 86_400_000, now))).toBe('in 2 days');
  expect(relative(now + 1000, now)).toBe('just now');
});

test('a share that is small is not called none', () => {
  expect(spaced(percent(0.0003))).toBe('under 0.1 %');
  expect(spaced(percent(0))).toBe('0 %');
  expect(spaced(percent(0.0342))).toBe('3.4 %');
});

test('a share that is nearly all is not called all', () => {
  expect(spaced(percent(0.997))).toBe('99.7 %');
  expect(spaced(percent(0.99999))).toBe('over 99.9 %');
  expect(spaced(percent(1))).toBe('100 %');
  expect(spaced(percent(0.42))).toBe('42 %');
});

test('a time says its zone once: UTC as itself, others by their offset', () => {
  const at = Date.parse('2026-11-21T06:33:56Z');
  const berlin = (timeZoneName: 'longOffset' | 'shortOffset') =>
    new Intl.DateTimeFormat('en-GB', { timeZone: 'Europe/Berlin', timeZoneName });
  expect(zoneOf(at, berlin('longOffset'))).toBe('UTC+01:00');
  expect(zoneOf(at, berlin('shortOffset'))).toBe('UTC+1');
  expect(zoneOf(at, new Intl.DateTimeFormat('en-GB', { timeZone: 'UTC', timeZoneName: 'longOffset' }))).toBe('UTC');
  expect(exactTime(at)).toMatch(/^2[12] Nov 2026, \d\d:\d\d:56 UTC/);
});
