import { expect, test } from 'vitest';
import { series, verdicts } from '../../../test/traffic';
import { perMinute } from './rates';

const at = (time: string) => Date.parse(`2026-11-21T${time}Z`);

test('a step that has not ended is counted by what of it has passed', () => {
  const data = series([verdicts(120, 12), verdicts(60, 6)]);
  expect(perMinute(data, at('06:01:30'))).toEqual({
    x: [at('06:00:00') / 1000, at('06:01:00') / 1000],
    allowed: [120, 120],
    denied: [12, 12],
  });
});

test('a step that has just begun says nothing yet', () => {
  const data = series([verdicts(120, 12), verdicts(3, 3)]);
  expect(perMinute(data, at('06:01:05')).denied).toEqual([12, null]);
});

test('what a bypass let pass was allowed', () => {
  const data = series([verdicts(10, 0, { bypassed: 5 })]);
  expect(perMinute(data, at('07:00:00')).allowed).toEqual([15]);
});
