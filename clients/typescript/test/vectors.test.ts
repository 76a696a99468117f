/** Replays clients/testdata/vectors.json, which all clients share. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { type Check, type FailureMode, Sluice, SluiceError, version } from '../src/index.js';
import { goneUrl, type Received, type Scripted, serve, testKey } from './server.js';

// biome-ignore lint/suspicious/noExplicitAny: the vectors are plain JSON
type Json = any;

const { cases } = JSON.parse(readFileSync(join(import.meta.dirname, '../../../testdata/vectors.json'), 'utf8')) as Json;

test('the vectors are read', () => assert.ok(cases.length >= 40));

for (const vector of cases) {
  test(vector.name, async (t) => {
    let next: Scripted | undefined;
    const server = await serve(() => {
      const answer = next ?? { status: 418, text: 'nothing was expected' };
      next = undefined;
      return answer;
    });
    const slow = vector.steps.some((step: Json) => ['slow', 'trickle', 'trickle_header'].includes(step.answer?.fault));
    let now = 0;
    t.mock.method(performance, 'now', () => now);
    const log: string[] = [];
    const limits = new Sluice({
      url: vector.gone ? await goneUrl() : server.url,
      key: testKey,
      // A busy machine must not turn other faults into a time-out.
      timeout: slow ? 200 : 20_000,
      failureMode: vector.config.failure_mode as FailureMode | undefined,
      denialMemory: vector.config.denial_memory_ms,
      logger: { warn: (line) => log.push(line), info: (line) => log.push(line) },
    });
    for (const step of vector.steps) {
      if (step.advance_ms) {
        now += step.advance_ms;
        continue;
      }
      next = step.answer;
      await run(limits, step);
      wantSent(step, server.take());
    }
    assert.doesNotMatch(log.join('\n'), /topsecret/);
  });
}

async function run(limits: Sluice, step: Json): Promise<void> {
  let got: Json;
  try {
    got = await call(limits, step);
  } catch (error) {
    if (!(error instanceof SluiceError) || !step.error) throw error;
    const { kind, status, type, requestId, fields } = error;
    wantMembers({ kind, status, type, requestId, fields }, step.error);
    assert.doesNotMatch(`${error.stack}${error.message}`, /topsecret/);
    return;
  }
  assert.equal(step.error, undefined, 'no error was thrown');
  if (step.decision) wantMembers(got, step.decision);
  step.decisions?.forEach((want: Json, i: number) => {
    wantMembers(got[i], want);
  });
  if (step.settlement) wantMembers(got, step.settlement);
  if (step.usage) assert.deepEqual(got, step.usage);
}

async function call(limits: Sluice, step: Json): Promise<unknown> {
  switch (step.call) {
    case 'check':
      return limits.check(readCheck(step.check));
    case 'reserve':
      return limits.reserve(readCheck(step.check), { hold: step.hold_ms });
    case 'batch':
      return limits.checkBatch(step.checks.map(readCheck));
    case 'settle':
      return limits.settle(step.reservation, step.costs ?? step.cost);
    case 'extend':
      return limits.extend(step.reservation, step.costs);
    case 'cancel':
    case 'release':
      return limits[step.call as 'cancel' | 'release'](step.reservation);
    case 'usage':
      return limits.usage(step.user_id, { plan: step.plan });
    default:
      throw new Error(`the vectors have an unknown call, ${step.call}`);
  }
}

function readCheck({ user_id, ...check }: Json): Check {
  return { userId: user_id, ...check };
}

function wantMembers(got: Json, want: Json): void {
  for (const [name, value] of Object.entries(want)) {
    const { error, ...rest } = got;
    const have = name === 'error_kind' ? (error?.kind ?? null) : rest[camel(name)];
    if (name === 'tiers') {
      assert.deepEqual(
        // express.test.ts sees the times; most rules count requests
        have.map(({ windowMs, moreAfterMs, meter, ...tier }: Json) => ({ ...tier, ...(meter && { meter }) })),
        (value as Json[]).map((tier) => Object.fromEntries(Object.entries(tier).map(([k, v]) => [camel(k), v]))),
      );
    } else {
      assert.deepEqual(have, value, name);
    }
  }
}

function camel(name: string): string {
  return name.replace(/_(.)/g, (_, letter: string) => letter.toUpperCase());
}

function wantSent(step: Json, got: Received[]): void {
  if (!step.answer) {
    assert.equal(got.length, 0, 'a request was sent');
    return;
  }
  assert.equal(got.length, 1, `${got.length} requests were sent`);
  const [{ method, path, body, headers }] = got as [Received];
  assert.deepEqual(
    { method, path, body: body ? JSON.parse(body) : undefined },
    { method: step.sent.method, path: step.sent.path, body: step.sent.body },
  );
  assert.equal(headers.authorization, `Bearer ${testKey}`);
  assert.equal(headers['user-agent'], `sluice-js/${version}`);
  if (body) assert.equal(headers['content-type'], 'application/json');
}
