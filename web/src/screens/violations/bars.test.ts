import { expect, test } from 'vitest';
import { violation } from '../../../test/traffic';
import { countBars } from './bars';

const at = (time: string) => Date.parse(`2026-11-21T${time}Z`);

test('an hour is counted per minute, and each violation by its count', () => {
  const found = [
    violation({ requested_at: '2026-11-21T06:00:31Z', count: 11 }),
    violation({ requested_at: '2026-11-21T06:00:59Z', count: 2 }),
    violation({ requested_at: '2026-11-21T06:59:59Z', count: 1 }),
  ];
  const bars = countBars(found, { from: at('06:00:00'), until: at('07:00:00') });
  expect(bars.stepSeconds).toBe(60);
  expect(bars.counts).toHaveLength(60);
  expect([bars.counts[0], bars.counts[1], bars.counts[59]]).toEqual([13, 0, 1]);
  expect(bars.x[59]).toBe(at('06:59:00') / 1000);
});

test('what is out of the time is not counted', () => {
  const bars = countBars([violation()], { from: at('08:00:00'), until: at('08:00:30') });
  expect(bars.counts.every((count) => count === 0)).toBe(true);
  expect(bars.stepSeconds).toBe(1);
});
