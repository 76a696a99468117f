import { expect, test } from 'vitest';
import { elapsedTick } from './options';

test.each([
  [[0, 50, 100, 150], '0, 50 s, 100 s, 150 s'],
  [[0, 60, 120, 300], '0, 1 min, 2 min, 5 min'],
  [[0, 0.2, 0.4], '0, 200 ms, 400 ms'],
])('ticks of elapsed time at %o seconds have one unit', (ticks, texts) => {
  expect(ticks.map((t) => elapsedTick(t, ticks).replaceAll('\u202f', ' ')).join(', ')).toBe(texts);
});
