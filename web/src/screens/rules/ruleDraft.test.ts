import { expect, test } from 'vitest';
import { fitted, newLimit, presets } from '~/domain/algorithm';
import { limitProblems } from '~/domain/rate';
import { rule } from '../../../test/fake';
import { creation, differences, isDirty, newRule, patch } from './ruleDraft';

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
  const credit = presets.find(({ label }) => label.startsWith('Burst credit'));
  expect(credit?.limit({ ...newLimit, rate_per_second: 2 }).burst_capacity).toBe(600);
  expect(credit?.limit({ ...newLimit, rate_per_second: 1e-6 }).burst_capacity).toBe(1);
});

test('a preset is a limit that can be saved, whatever the draft was', () => {
  const quota = fitted({
    ...newLimit,
    algorithm: 'fixed_window',
    window: 'month',
    window_zone: 'Europe/Berlin',
  });
  for (const { label, limit } of presets) {
    for (const draft of [newLimit, quota]) {
      expect(limitProblems(limit(draft)), label).toEqual({});
    }
  }
});

test('another algorithm sends what it needs, and drops what it cannot have', () => {
  const live = rule({ refill_interval: '10s' });
  const quota = {
    ...live,
    ...fitted({ ...live, algorithm: 'fixed_window', window: 'month', notify_at: [80] }),
  };
  expect(patch(live, quota)).toEqual({
    algorithm: 'fixed_window',
    rate_per_second: 0,
    window: 'month',
    refill_interval: null,
    notify_at: [80],
  });
  expect(creation({ ...newRule, ...fitted({ ...newLimit, algorithm: 'concurrency' }) })).toEqual(
    expect.objectContaining({ algorithm: 'concurrency', burst_capacity: 50, max_hold: '10m' }),
  );
  expect(creation({ ...newRule, ...fitted({ ...newLimit, algorithm: 'concurrency' }) })).not.toHaveProperty(
    'rate_per_second',
  );
  expect(differences(live, quota).map(({ label, to }) => `${label}: ${to}`)).toEqual([
    'Algorithm: Fixed window, quota',
    'Rate: none',
    'Window: month',
    'Refill interval: continuous',
    'Record usage at: 80 %',
  ]);
});

test('differences read as people say them', () => {
  const before = rule();
  const after = { ...before, rate_per_second: 20, is_active: false };
  expect(differences(before, after)).toEqual([
    { label: 'Rate', from: '10 per second', to: '20 per second' },
    { label: 'State', from: 'on', to: 'off' },
  ]);
});
