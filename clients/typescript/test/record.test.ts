import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Sluice, SluiceError } from '../src/index.js';
import { type Scripted, serve, testKey } from './server.js';

const id = '0123456789abcdef';
const away: Scripted = { status: 503, body: { type: 'urn:sluice:problem:unavailable', title: 'away' } };
const full: Scripted = { status: 429, body: { type: 'urn:sluice:problem:record-ids-exhausted', title: 'full' } };
const tiers = [
  { rule_id: 12, charged: 2.5 },
  { rule_id: 13, charged: 0 },
];
const recorded: Scripted = { body: { allowed: true, recorded: true, tiers } };

for (const [name, given, answers, sent, status] of [
  ['an answer', id, [recorded], 1, -1],
  ['a lost answer, 503, and then an answer', id, [{ fault: 'reset' }, away, recorded], 3, -1],
  ['503 again and again', id, [away, away, away, away], 3, 503],
  ['too many ids', id, [full, recorded], 1, 429],
  ['503 without an id', undefined, [away, recorded], 1, 503],
  ['a lost answer without an id', undefined, [{ fault: 'reset' }, recorded], 1, 0],
  ['a server that does not know records', id, [{ body: { allowed: true, tiers: [] } }, recorded], 1, 200],
] as [string, string | undefined, Scripted[], number, number][]) {
  test(`a record: ${name}`, async () => {
    const left = [...answers];
    const server = await serve(() => left.shift() as Scripted);
    const limits = new Sluice({ url: server.url, key: testKey, timeout: 20_000 });
    const recording = limits.record({ userId: '42', cost: 7 }, 2.5, { id: given });
    if (status < 0) {
      assert.deepEqual(await recording, { recorded: true, charged: new Map([[12, 2.5]]) });
    } else {
      await assert.rejects(recording, (error) => error instanceof SluiceError && error.status === status);
    }
    const requests = server.take();
    assert.equal(requests.length, sent);
    for (const { path, body } of requests) {
      const record_id = given ? { record_id: given } : {};
      assert.equal(path, '/v1/check');
      assert.deepEqual(JSON.parse(body), { user_id: '42', cost: 2.5, record: true, ...record_id });
    }
  });
}
