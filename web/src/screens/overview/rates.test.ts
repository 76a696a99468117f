import { expect, test } from 'vitest';
import { series, verdicts } from '../../../test/traffic';
import { averageOf, perMinute } from './rates';

const at = (time: string) => Date.parse(`2026-11-21T${time}Z`);

test('a minute that has not ended is a rate of its elapsed time, not a fall', () => {
  const data = series([verdicts(120, 12), verdicts(40, 4)]);
  expect(perMinute(data, at('06:01:20'))).toEqual({
    x: [at('06:00:00') / 1000, at('06:01:00') / 1000],
    allowed: [120, 120],
    denied: [12, 12],
    unfinished: true,
  });
});

test('a minute that has hardly begun is left out, unless there is no other', () => {
  expect(perMinute(series([verdicts(120, 12), verdicts(7, 1)]), at('06:01:14'))).toEqual({
    x: [at('06:00:00') / 1000],
    allowed: [120],
    denied: [12],
    unfinished: false,
  });
  expect(perMinute(series([verdicts(7, 1)]), at('06:00:05'))).toMatchObject({
    allowed: [28],
    unfinished: true,
  });
});

test('a longer step that has not ended is divided by the time that has passed', () => {
  const data = { ...series([verdicts(30, 0)]), step_seconds: 300 };
  expect(perMinute(data, at('06:00:20')).allowed).toEqual([90]);
  expect(perMinute(data, at('06:02:00')).allowed).toEqual([15]);
  expect(perMinute(data, at('06:05:00'))).toMatchObject({ allowed: [6], unfinished: false });
});

test('what a bypass let pass was allowed', () => {
  const data = series([verdicts(10, 0, { bypassed: 5 })]);
  expect(perMinute(data, at('07:00:00')).allowed).toEqual([15]);
});

test('an average begins with the first checks of a range', () => {
  const quiet = verdicts(0, 0);
  const data = series([quiet, quiet, quiet, verdicts(120, 0), verdicts(120, 0)]);
  expect(averageOf(240, data, at('06:00:00'), at('06:05:00'))).toBe('2 per second since 21 Nov, 06:03 UTC');
  expect(averageOf(600, series([verdicts(1, 0)]), at('06:00:00'), at('06:05:00'))).toBe('2 per second on average');
  expect(averageOf(600, undefined, at('06:00:00'), at('06:05:00'))).toBe('2 per second on average');
  expect(averageOf(1, undefined, at('06:00:00'), at('07:00:00'))).toBe('less than 0.1 per minute on average');
  expect(averageOf(0, undefined, at('06:00:00'), at('07:00:00'))).toBe('no checks in this time');
});
