import { expect, test } from 'vitest';
import { AwayError, ProblemError } from '~/api/problem';
import { nextLook } from '~/api/queries';
import { bucket } from '../../../test/traffic';
import { lentText } from '../../domain/lent';
import { levelAfter } from './level';
import { lineErrors } from './lines';

test('a bucket fills at its rate up to its burst, and never runs backwards', () => {
  const it = bucket({ tokens: 20, rate_per_second: 10, burst_capacity: 50 });
  expect([-500, 0, 1500, 60_000].map((ms) => levelAfter(it, ms))).toEqual([20, 20, 35, 50]);
});

test('a bucket fills up beside what it has lent', () => {
  const it = bucket({
    tokens: 20,
    rate_per_second: 10,
    burst_capacity: 50,
    lent: { tokens: 12, processes: 2 },
  });
  expect([0, 1000, 60_000].map((ms) => levelAfter(it, ms))).toEqual([20, 30, 38]);
  expect(lentText(it)).toBe('12 more lent to 2 processes');
  expect(lentText({ lent: { tokens: 0.5, processes: 1 } })).toBe('1 more lent to 1 process');
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
  expect(lineErrors(document, 'user_id,plan\r\n42,gold')).toEqual([{ line: 2, content: '42,gold', detail: 'is none' }]);
});

test('an erasure is looked at until it has finished, more rarely after a minute, and not where it is closed', () => {
  const running = { erasure_id: 1, receipt_id: 'r', user_id: '42', finished_at: null, steps: [], rules: [] };
  const look = { data: running as never, error: null, dataUpdateCount: 1 };
  const problem = (status: number) => new ProblemError({ type: 't', title: 't', status });
  expect(nextLook(look)).toBe(1_000);
  expect(nextLook({ ...look, dataUpdateCount: 60 })).toBe(15_000);
  expect(nextLook({ ...look, error: new AwayError(null) })).toBe(15_000);
  expect(nextLook({ ...look, error: problem(503) })).toBe(15_000);
  for (const status of [403, 404]) {
    expect(nextLook({ ...look, data: undefined, error: problem(status) })).toBe(false);
  }
  expect(nextLook({ ...look, data: { ...running, finished_at: '2026-11-26T17:06:12Z' } as never })).toBe(false);
});
