import { expect, test } from 'vitest';
import { bucket } from '../../../test/traffic';
import { levelAfter } from './level';
import { lineErrors } from './lines';

test('a bucket fills at its rate up to its burst, and never runs backwards', () => {
  const it = bucket({ tokens: 20, rate_per_second: 10, burst_capacity: 50 });
  expect([-500, 0, 1500, 60_000].map((ms) => levelAfter(it, ms))).toEqual([20, 20, 35, 50]);
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
