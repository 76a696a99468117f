import { expect, test } from 'vitest';
import { series, verdicts } from '../../../test/traffic';
import { perMinute } from './rates';

const at = (time: string) => Date.parse(`2026-11-21T${time}Z`);

test('the checks of a minute that has not ended are counted, not extrapolated', () => {
  const data = series([verdicts(120, 12), verdicts(7, 1)]);
  expect(perMinute(data, at('06:01:17'))).toEqual({
    x: [at('06:00:00') / 1000, at('06:01:00') / 1000],
    allowed: [120, 7],
    denied: [12, 1],
    unfinished: true,
  });
});

test('a longer step that has not ended is divided by the minutes that have passed, one at least', () => {
  const data = { ...series([verdicts(30, 0)]), step_seconds: 300 };
  expect(perMinute(data, at('06:00:20')).allowed).toEqual([30]);
  expect(perMinute(data, at('06:02:00')).allowed).toEqual([15]);
  expect(perMinute(data, at('06:05:00'))).toMatchObject({ allowed: [6], unfinished: false });
});

test('what a bypass let pass was allowed', () => {
  const data = series([verdicts(10, 0, { bypassed: 5 })]);
  expect(perMinute(data, at('07:00:00')).allowed).toEqual([15]);
});
