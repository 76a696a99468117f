import { expect, test } from 'vitest';
import { algorithms } from './algorithm';
import { arrivals, type Outcome, pictureInWords, pictureOf, span, windowLength } from './picture';
import type { Algorithm } from './rate';

const all = Object.keys(algorithms) as Algorithm[];
const allowedIn = (outcomes: Outcome[], from: number, until: number) =>
  outcomes.filter(({ at, allowed }) => allowed && at >= from && at < until).length;
/** The most that passed in any interval as long as a window. */
const most = (outcomes: Outcome[]) => Math.max(...outcomes.map(({ at }) => allowedIn(outcomes, at, at + windowLength)));

test('all algorithms see the same traffic, and each denies some of it', () => {
  expect(arrivals.toSorted((a, b) => a - b)).toEqual(arrivals);
  expect(arrivals.at(-1)).toBeLessThan(span);
  for (const algorithm of all) {
    const outcomes = pictureOf(algorithm);
    expect(outcomes.map(({ at }) => at)).toEqual(arrivals);
    expect(outcomes.some(({ allowed }) => allowed)).toBe(true);
    expect(outcomes.some(({ allowed }) => !allowed)).toBe(true);
  }
});

test('around a boundary a fixed window lets through twice its limit, and an exact sliding one never more than it', () => {
  expect(allowedIn(pictureOf('fixed_window'), 13, 17)).toBe(10);
  expect(most(pictureOf('sliding_window_log'))).toBe(5);
  expect(most(pictureOf('sliding_window'))).toBeLessThan(10);
});

test('only a queue lets requests wait, and it lets them out one a second', () => {
  for (const algorithm of all) {
    const waited = pictureOf(algorithm).some(({ at, goesAt }) => goesAt > at);
    expect(waited).toBe(algorithm === 'leaky_bucket');
  }
  const leaves = pictureOf('leaky_bucket').filter(({ allowed }) => allowed);
  for (const [index, one] of leaves.entries()) {
    expect(one.goesAt - (leaves[index - 1]?.goesAt ?? -1)).toBeGreaterThan(0.999);
  }
});

test('only concurrency holds places, never more than five', () => {
  const held = pictureOf('concurrency').filter(({ allowed }) => allowed);
  expect(Math.max(...held.map(({ at }) => held.filter((one) => one.at <= at && one.endsAt > at).length))).toBe(5);
  expect(pictureOf('token_bucket').every(({ goesAt, endsAt }) => goesAt === endsAt)).toBe(true);
});

test('in steps a token bucket earns nothing between them', () => {
  expect(allowedIn(pictureOf('token_bucket', true), 2.5, 5)).toBe(0);
  expect(allowedIn(pictureOf('token_bucket'), 2.5, 5)).toBeGreaterThan(0);
});

test('a picture reads as a sentence', () => {
  expect(pictureInWords(pictureOf('leaky_bucket'))).toMatch(
    /^35 requests: \d+ allowed \(\d+ after a wait\), \d+ denied$/,
  );
});
