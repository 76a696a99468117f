import { expect, test } from 'vitest';
import { bucket } from '../../../test/traffic';
import { expiresAt, expiryOf } from './expiry';
import { levelAfter } from './level';
import { lineErrors } from './lines';

test('a bucket fills at its rate up to its burst, and never runs backwards', () => {
  const it = bucket({ tokens: 20, rate_per_second: 10, burst_capacity: 50 });
  expect([-500, 0, 1500, 60_000].map((ms) => levelAfter(it, ms))).toEqual([20, 20, 35, 50]);
});

const now = Date.parse('2026-11-21T06:00:00Z');

test.each([
  ['for one week', { length: '7d', until: '' }, '2026-11-28T06:00:00.000Z'],
  ['until a moment', { length: 'until', until: '2026-12-01T00:00:00Z' }, '2026-12-01T00:00:00.000Z'],
])('a raise %s ends then', (_, expiry, end) => {
  expect(expiresAt(expiry, now)?.toISOString()).toBe(end);
});

test('a raise without end, and one whose end is missing or past', () => {
  expect(expiresAt({ length: 'never', until: '' }, now)).toBeNull();
  expect(expiresAt({ length: 'until', until: '' }, now)).toBeUndefined();
  expect(expiresAt({ length: 'until', until: '2026-11-20T00:00:00Z' }, now)).toBeUndefined();
});

test('the end of a raise comes back to edit as it was given, to the minute', () => {
  expect(expiresAt(expiryOf('2026-12-01T12:34:00Z'), now)?.toISOString()).toBe('2026-12-01T12:34:00.000Z');
  expect(expiryOf(null).length).toBe('never');
});

test('mistakes of an import stand beside their lines; others are left to the problem', () => {
  const document = {
    type: 't',
    title: 't',
    status: 400,
    errors: [
      { pointer: '/lines/2/plan', detail: 'is none' },
      { pointer: '', detail: 'has no header' },
    ],
  };
  expect(lineErrors(document, 'user_id,plan\r\n42,gold')).toEqual([
    { line: 2, content: '42,gold', detail: 'is none' },
  ]);
});
