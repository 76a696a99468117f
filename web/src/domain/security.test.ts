import { expect, test } from 'vitest';
import { titleOf } from './security';

test('an event is named, with its count, and a kind of a later release by its own name', () => {
  expect(titleOf({ kind: 'signed_in', count: 1 })).toBe('Signed in');
  expect(titleOf({ kind: 'sign_in_failed', count: 12 })).toBe('Sign-in failed, 12 times');
  expect(titleOf({ kind: 'badge_shown', count: 1 })).toBe('Badge shown');
});
