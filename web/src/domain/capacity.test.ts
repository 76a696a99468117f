import { expect, test } from 'vitest';
import type { ThingCapacity } from '~/api/types';
import { fullText, isFull, usedShare, usedText } from './capacity';

const capacity = (held: number, allowed: number): ThingCapacity => ({
  thing: 'api_keys',
  held,
  allowed,
  default: 1000,
  is_default: allowed === 1000,
});

test.each([
  [capacity(0, 1000), 0, false],
  [capacity(250, 1000), 0.25, false],
  [capacity(1000, 1000), 1, true],
  [capacity(1200, 1000), 1, true], // the capacity was lowered
  [capacity(0, 0), 1, true],
])('%o is used to %d', (one, share, full) => {
  expect([usedShare(one), isFull(one)]).toEqual([share, full]);
});

test('a tenant at its capacity is told what is held, what to do, and who can help', () => {
  expect(usedText(capacity(1200, 1000))).toBe('1,200 of 1,000');
  expect(fullText(capacity(1200, 1000))).toBe(
    'This tenant holds 1,200 API keys and may hold 1,000. Revoke some that are no longer used, or ask a ' +
      'platform admin to raise its capacity.',
  );
});
