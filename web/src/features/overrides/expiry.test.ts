import { expect, test } from 'vitest';
import { expiresAt, expiryOf, withLength } from './expiry';

const now = Date.parse('2026-11-21T06:00:00Z');

test.each([
  ['for one week', { length: '7d', until: null }, '2026-11-28T06:00:00.000Z'],
  ['until tonight', { length: 'tonight', until: null }, '2026-11-22T00:00:00.000Z'],
  ['until a moment', { length: 'until', until: Date.parse('2026-12-01T00:00:00Z') }, '2026-12-01T00:00:00.000Z'],
])('an override %s ends then', (_, expiry, end) => {
  expect(expiresAt(expiry, now)).toBe(end);
});

test('an override without end, and one whose end is missing or past', () => {
  expect(expiresAt({ length: 'never', until: null }, now)).toBeNull();
  expect(expiresAt({ length: 'until', until: null }, now)).toBeUndefined();
  expect(expiresAt({ length: 'until', until: Date.parse('2026-11-20T00:00:00Z') }, now)).toBeUndefined();
});

test('an end that nobody changed is sent as it was saved', () => {
  const saved = '2026-12-01T12:34:56.789012Z';
  expect(expiresAt(expiryOf(saved), now)).toBe(saved);
  expect(expiresAt(expiryOf(null), now)).toBeNull();
});

test.each([
  ['7d', '2026-11-28T06:00Z'],
  ['never', '2026-11-22T00:00Z'],
])('a date to choose begins with the end of %s', (length, until) => {
  expect(withLength({ length, until: null }, 'until', now)).toEqual({ length: 'until', until: Date.parse(until) });
});

test('a date that was chosen stays', () => {
  const chosen = { length: '1h', until: Date.parse('2026-12-24T12:00Z') };
  expect(withLength(chosen, 'until', now)).toEqual({ ...chosen, length: 'until' });
});
