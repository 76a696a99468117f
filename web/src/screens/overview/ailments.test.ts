import { expect, test } from 'vitest';
import { process } from '../../../test/traffic';
import { ailments, redisOf } from './ailments';

const now = Date.parse('2026-11-21T06:00:00Z');
const plain = (text: string) => text.replaceAll('\u202f', ' ');

test.each([
  ['is well', {}, []],
  ['was silent', { reported_at: '2026-11-21T05:59:20Z' }, ['no report for 40 s']],
  ['has old rules', { rules_age_ms: 90_000 }, ['rules are 90 s old']],
  ['has no rules', { rules_loaded: false, rules_age_ms: null }, ['no rules loaded']],
  [
    'has no Redis',
    { redis: 'down' as const, degraded_share: 1 },
    ['Redis down: failure modes apply', '100 % of decisions degraded'],
  ],
  [
    'misses a node of a Redis Cluster',
    { redis: 'partial' as const, redis_down: ['10.0.0.1:6379'] },
    ['Redis down at 10.0.0.1:6379'],
  ],
  ['has no database', { database: 'down' as const }, ['database down: the last rules stay in force']],
])('a process that %s says so', (_, more, words) => {
  expect(ailments(process(more), now).map(plain)).toEqual(words);
});

test.each([
  ['down', 'Down'],
  ['partial', 'Partly down'],
  ['memory', 'Not used'],
  ['up', 'Up'],
  ['unknown', 'Unknown'],
] as const)('Redis that is %s is called %s', (redis, word) => {
  expect(redisOf({ redis }).word).toBe(word);
});
