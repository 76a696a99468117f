import { describe, expect, test } from 'vitest';
import type { Timeline } from '~/api/types';
import type { Limit } from '~/domain/rate';
import { noSimulation } from '../../../test/rules';
import { bundle, deniedBySlice, pictureOf, shaped, slices, streamOf, windowMs } from './arrivals';
import { inWords } from './BucketPicture';

const limit = (rate: number, burst: number): Limit => ({
  rate_per_second: rate,
  rate_unit: 'second',
  burst_capacity: burst,
});

const kinds: [string, Limit][] = [
  ['10 per second', limit(10, 50)],
  ['strict pacing', limit(5, 1)],
  ['1000 per day', limit(1000 / 86400, 1000)],
  ['a million per second', limit(1e6, 1e6)],
  ['the slowest', limit(1e-6, 31)],
];

describe.each(kinds)('%s', (_, one) => {
  test('the time shows the bucket empty and full again', () => {
    const seconds = windowMs(one) / 1000;
    expect(seconds).toBeGreaterThanOrEqual(Math.min((one.burst_capacity / one.rate_per_second) * 2.5, 365 * 86400));
  });

  test('the stream is in order, within the time, and not too long; nothing gets lost', () => {
    for (const shape of ['spike', 'steady', 'ramp'] as const) {
      const arrivals = shaped(shape, one);
      const stream = streamOf(arrivals);
      const total = arrivals.counts.reduce((sum, count) => sum + count, 0);
      expect(stream.reduce((sum, { cost = 1 }) => sum + cost, 0)).toBe(total);
      expect(stream.length).toBeLessThanOrEqual(3000 + slices);
      expect(stream.every(({ at_ms }, index) => index === 0 || at_ms >= (stream[index - 1]?.at_ms ?? 0))).toBe(true);
      expect(stream.every(({ at_ms }) => at_ms < arrivals.sliceMs * slices)).toBe(true);
    }
  });
});

test('the spike is what the bucket cannot take', () => {
  const { counts } = shaped('spike', limit(10, 50));
  expect((counts[8] ?? 0) + (counts[9] ?? 0) + (counts[10] ?? 0)).toBeGreaterThan(50);
  expect(bundle(shaped('spike', limit(10, 50)))).toBe(1);
});

function decided(at_ms: number): Timeline['decisions'][number] {
  return { at_ms, cost: 1, allowed: true, deciding_rule: null, reason: null, retry_after_ms: 0, delay_ms: 0 };
}

const timeline: Timeline = {
  first_denial_ms: 20,
  longest_wait_ms: 80,
  longest_delay_ms: 0,
  decisions: [
    decided(0),
    decided(10),
    { ...decided(20), allowed: false, deciding_rule: 0, reason: 'limit_exceeded', retry_after_ms: 80 },
  ],
  tiers: [{ levels: [0, 10].map((at_ms, index) => ({ at_ms, tokens: 2 - 2 * index })) }],
};

test('denials are counted in the slice they fell into', () => {
  const arrivals = { sliceMs: 20, counts: [2, 1, ...Array<number>(slices - 2).fill(0)], most: 4 };
  expect(deniedBySlice(arrivals, timeline).slice(0, 2)).toEqual([0, 1]);
});

test('the line goes on to the end, up to the burst and no further', () => {
  const arrivals = { sliceMs: 20, counts: Array<number>(slices).fill(0), most: 4 };
  const picture = pictureOf(limit(10, 2), arrivals, timeline);
  expect(picture.x.at(-1)).toBe(0.6);
  expect(picture.tokens.at(-1)).toBe(2);
  expect(picture.denied.filter((at) => at !== null)).toHaveLength(1);
});

test('the sentence of a simulation counts what the rule counts', () => {
  const one = limit(10, 50);
  const arrivals = shaped('steady', one);
  expect(inWords(noSimulation, arrivals, 'requests')).toMatch(/^[\d,]+ requests in .*: all allowed\./);
  expect(inWords(noSimulation, arrivals, 'input_tokens')).toMatch(/^[\d,]+ input tokens in .*: all allowed\./);
});
