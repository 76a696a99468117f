import { expect, test } from 'vitest';
import { rule } from '../../../test/fake';
import { burstCredit, creation, differences, isDirty, newRule, patch } from './ruleDraft';

test('only what differs is sent', () => {
  const live = rule();
  expect(patch(live, { ...live, burst_capacity: 60 })).toEqual({ burst_capacity: 60 });
  expect(isDirty(live, live)).toBe(false);
});

test('a rule that blocks takes no tokens', () => {
  expect(patch(rule(), { ...rule(), action: 'block' })).toEqual({
    action: 'block',
    rate_per_second: 0,
    burst_capacity: 0,
  });
  expect(creation({ ...newRule, action: 'block' })).not.toHaveProperty('rate_per_second');
});

test('a bypass has no shadow', () => {
  expect(creation({ ...newRule, action: 'bypass', mode: 'shadow' }).mode).toBe('enforce');
});

test('burst credit is five minutes of the rate, and at least one', () => {
  const limit = { rate_per_second: 2, rate_unit: 'second' as const, burst_capacity: 5 };
  expect(burstCredit(limit).burst_capacity).toBe(600);
  expect(burstCredit({ ...limit, rate_per_second: 1e-6 }).burst_capacity).toBe(1);
});

test('differences read as people say them', () => {
  const before = rule();
  const after = { ...before, rate_per_second: 20, is_active: false };
  expect(differences(before, after)).toEqual([
    { label: 'Rate', from: '10 per second', to: '20 per second' },
    { label: 'State', from: 'on', to: 'off' },
  ]);
});
