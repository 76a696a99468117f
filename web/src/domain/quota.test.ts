import { expect, test } from 'vitest';
import type { Quota } from '~/api/types';
import { fullText, isFull, usedShare, usedText } from './quota';

const quota = (held: number, allowed: number): Quota => ({
  thing: 'api_keys',
  held,
  allowed,
  default: 1000,
  is_default: allowed === 1000,
});

test.each([
  [quota(0, 1000), 0, false],
  [quota(250, 1000), 0.25, false],
  [quota(1000, 1000), 1, true],
  [quota(1200, 1000), 1, true], // the quota was lowered
  [quota(0, 0), 1, true],
])('%o is used to %d', (one, share, full) => {
  expect([usedShare(one), isFull(one)]).toEqual([share, full]);
});

test('a full quota says what is held, what to do, and who can help', () => {
  expect(usedText(quota(1200, 1000))).toBe('1,200 of 1,000');
  expect(fullText(quota(1200, 1000))).toBe(
    'This tenant holds 1,200 API keys and may hold 1,000. Revoke some that are no longer used, or ask a ' +
      'platform admin to raise its capacity.',
  );
});
