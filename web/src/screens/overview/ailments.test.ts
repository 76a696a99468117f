import { expect, test } from 'vitest';
import { process, status } from '../../../test/traffic';
import { ailments, redisOf } from './ailments';

const now = Date.parse('2026-11-21T06:00:00Z');
const plain = (text: string) => text.replaceAll('\u202f', ' ');

test.each([
  ['is well', {}, []],
  ['was silent', { reported_at: '2026-11-21T05:59:20Z' }, ['silent for 40 s']],
  ['has old rules', { rules_age_ms: 90_000 }, ['rules are 1 min 30 s old']],
  ['has no rules', { rules_loaded: false, rules_age_ms: null }, ['no rules loaded']],
  [
    'has no Redis',
    { redis: 'down' as const, degraded_share: 1 },
    ['no Redis: failure modes act', '100 % decided without Redis'],
  ],
  [
    'misses a node of a Redis Cluster',
    { redis: 'partial' as const, redis_down: ['10.0.0.1:6379'] },
    ['no answer from Redis at 10.0.0.1:6379'],
  ],
  ['has no database', { database: 'down' as const }, ['no database: the last rules hold']],
])('a process that %s says so', (_, more, words) => {
  expect(ailments(process(more), now).map(plain)).toEqual(words);
});

test('Redis is down if one process cannot reach it', () => {
  const seen = redisOf(status([process(), process({ redis: 'down' })]));
  expect(seen).toMatchObject({ word: 'Down', note: '1 of 2 processes cannot reach it' });
  expect(redisOf(status([process({ redis: 'memory' })])).word).toBe('Not used');
  expect(redisOf(status([])).word).toBe('Up');
});

test('a Redis Cluster of which nodes are down is partly down, and the nodes are named once', () => {
  const lost = { redis: 'partial' as const, redis_down: ['10.0.0.1:6379'] };
  const seen = redisOf(status([process(lost), process(lost), process()]));
  expect(seen.word).toBe('Partly down');
  expect(seen.note).toContain('no answer from 10.0.0.1:6379: failure modes act');
});
