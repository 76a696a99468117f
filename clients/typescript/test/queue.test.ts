import assert from 'node:assert/strict';
import { getEventListeners, once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import { Breaker } from '../src/breaker.js';
import { type Decision, Limiter, Sluice, SluiceError, version } from '../src/index.js';
import { Memory } from '../src/memory.js';
import { Queue } from '../src/queue.js';
import { decode, type Question } from '../src/wire.js';
import { goneUrl, type Scripted, serve, testKey } from './server.js';

const quiet = { warn: () => undefined, info: () => undefined };

interface Held {
  path: string;
  body: string;
  users: string[];
  /**
   * Allows all checks, with the user's id as plan, and a reservation for the user holder. With status 400 it refuses
   * the checks of the user bad.
   */
  let(status?: number): void;
  /** Allows n checks of a user and all of others. */
  limit(user: string, n: number): void;
}

/** A server that answers on command. */
async function gate(options: { timeout?: number; failureMode?: 'open' | 'closed' } = {}) {
  const arrived: Held[] = [];
  let ring = () => {};
  const server = await serve(
    ({ path, body }) =>
      new Promise<Scripted>((resolve) => {
        const { checks, user_id } = JSON.parse(body);
        const users: string[] = (checks ?? [{ user_id }]).map((check: { user_id: string }) => check.user_id);
        const held: Held = {
          path,
          body,
          users,
          let(status = 200) {
            const results = users.map((plan) => ({
              ...{ status: 200, allowed: true, plan },
              ...(plan === 'holder' ? { reservation: 'a place' } : {}),
            }));
            const errors = users.flatMap((user, i) =>
              user === 'bad' ? [{ pointer: `/checks/${i}/user_id`, detail: 'is bad' }] : [],
            );
            resolve({ status, body: status !== 200 ? { type: 'urn:x', errors } : checks ? { results } : results[0] });
          },
          limit(limited, n) {
            let left = n;
            const results = users.map((user) =>
              user !== limited || left-- > 0
                ? { status: 200, allowed: true }
                : { status: 429, allowed: false, reason: 'limit_exceeded', retry_after_ms: 60_000 },
            );
            resolve({ body: checks ? { results } : results[0] });
          },
        };
        arrived.push(held);
        ring();
      }),
  );
  const limits = new Sluice({ url: server.url, key: testKey, timeout: 30_000, logger: quiet, ...options });
  const next = async (): Promise<Held> => {
    for (;;) {
      const held = arrived.shift();
      if (held) return held;
      await new Promise<void>((resolve) => {
        ring = resolve;
      });
    }
  };
  return { limits, next, server };
}

test('checks that wait go together', async () => {
  const { limits, next, server } = await gate();
  const results = Array.from({ length: 20 }, (_, i) => limits.check({ userId: String(i) }));
  const alone = [await next(), await next()];
  alone[0]?.let();
  const batch = await next();
  assert.equal(batch.path, '/v1/check/batch');
  assert.equal(batch.users.length, 18);
  alone[1]?.let();
  batch.let();
  const decisions = await Promise.all(results);
  assert.deepEqual(
    decisions.map(({ plan }) => plan),
    Array.from({ length: 20 }, (_, i) => String(i)),
  );
  assert.equal(server.requests.length, 3);
});

test('without batching each check is a request', async () => {
  const server = await serve(() => ({ body: { allowed: true } }));
  const limits = new Sluice({ url: server.url, key: testKey, timeout: 30_000, batch: false });
  await Promise.all(Array.from({ length: 5 }, () => limits.check({})));
  assert.equal(server.requests.length, 5);
});

test('a bad check fails alone in its batch', async () => {
  const { limits, next } = await gate();
  const results = ['a', 'b', 'good', 'bad', 'other'].map((userId) => limits.check({ userId }).catch((error) => error));
  const alone = [await next(), await next()];
  alone[0]?.let();
  (await next()).let(400);
  const again = await next();
  assert.deepEqual(again.users, ['good', 'other']);
  again.let();
  alone[1]?.let();
  const answers = await Promise.all(results);
  const bad = answers[3];
  assert.ok(bad instanceof SluiceError && bad.kind === 'request');
  assert.deepEqual(bad.fields, [{ pointer: '/user_id', detail: 'is bad' }]);
  for (const i of [0, 1, 2, 4]) assert.equal((answers[i] as Decision).source, 'server');
});

test('a refused batch is sent again without the checks of callers that left', async () => {
  const { limits, next } = await gate();
  const first = [limits.check({}), limits.check({})];
  const alone = [await next(), await next()];
  const leaving = new AbortController();
  const leaver = limits.check({ userId: 'leaver' }, { signal: leaving.signal });
  const bad = limits.check({ userId: 'bad' });
  const stayer = limits.check({ userId: 'stayer' });
  alone[0]?.let();
  const batch = await next();
  leaving.abort(new Error('left'));
  await assert.rejects(leaver, /left/);
  batch.let(400);
  await assert.rejects(bad, { kind: 'request' });
  const rest = await next();
  assert.deepEqual(rest.users, ['stayer']);
  rest.let();
  alone[1]?.let();
  await Promise.all([stayer, ...first]);
});

test('all that a batch sends ends within one time-out', async (t) => {
  let now = 0;
  t.mock.method(performance, 'now', () => now);
  const allowed = decode({ allowed: true }, 200) as Decision;
  let answer = (_: Decision) => {};
  const one = ({ identity }: Question) =>
    new Promise<Decision>((resolve) => {
      if (identity === 'first') answer = resolve;
    });
  const sent: unknown[] = [];
  const many = async (questions: Question[], within?: number) => {
    sent.push([questions.length, within]);
    now += 20_000;
    throw new SluiceError('request', 'x', { fields: [{ pointer: '/checks/0/plan', detail: 'is no plan' }] });
  };
  const transport = { one, many, unwanted: () => undefined };
  const queue = new Queue(transport, new Memory(5000), new Breaker(30_000, () => 0), 30_000, true);
  const ask = (identity: string) => queue.ask({ identity, body: '{}', cost: 1 });
  const [first, , ...rest] = ['first', 'other', 'bad', 'worse', 'good', 'well'].map(ask);
  const ends = rest.map((one) => one.catch(({ kind }: SluiceError) => kind));
  answer(allowed);
  await first;
  assert.deepEqual(await Promise.all(ends), ['request', 'request', 'timeout', 'timeout']);
  assert.deepEqual(sent, [
    [4, 30_000],
    [3, 10_000],
  ]);
});

test('requests that hang hold up only their own checks', async () => {
  const { limits, next } = await gate({ timeout: 1000 });
  const hanging = [limits.check({ userId: 'a' }), limits.check({ userId: 'b' })];
  await next();
  await next();
  const later = limits.check({ userId: 'later' });
  (await next()).let(); // though none of the others has ended
  assert.equal((await later).source, 'server');
  for (const { source, allowed } of await Promise.all(hanging))
    assert.deepEqual([source, allowed], ['failure_mode', true]);
});

test('a caller that leaves takes its check along', async () => {
  const { limits, next } = await gate();
  const first = [limits.check({}), limits.check({})];
  const alone = [await next(), await next()];
  const leaving = new AbortController();
  const leaver = limits.check({ userId: 'leaver' }, { signal: leaving.signal });
  const stayer = limits.check({ userId: 'stayer' });
  leaving.abort(new Error('left'));
  await assert.rejects(leaver, /left/);
  alone[0]?.let();
  const rest = await next();
  assert.deepEqual(rest.users, ['stayer']);
  rest.let();
  alone[1]?.let();
  await Promise.all([stayer, ...first]);
});

test('one signal for many checks keeps no listener, whatever becomes of them', async () => {
  const decided = (user: string) =>
    user === 'denied' ? { status: 429, allowed: false, reason: 'blocked' } : { status: 200, allowed: true };
  const server = await serve(({ body }) => {
    const { checks, user_id: user } = JSON.parse(body);
    if (user === 'refused') return { status: 400, body: { type: 'urn:x', errors: [] } };
    if (user === 'failed') return { status: 500, body: {} };
    return {
      body: checks ? { results: checks.map((check: { user_id: string }) => decided(check.user_id)) } : decided(user),
    };
  });
  const limits = new Sluice({ url: server.url, key: testKey, timeout: 30_000, logger: quiet });
  const { signal } = new AbortController();
  for (const alone of ['refused', 'failed', 'allowed']) {
    const users = [alone, 'denied', 'allowed', ...Array.from({ length: 100 }, (_, i) => `${alone} ${i}`)];
    const checks = users.map((userId) => limits.check({ userId }, { signal }));
    assert.equal(getEventListeners(signal, 'abort').length, 1); // Node warns of a leak at eleven
    await Promise.allSettled(checks);
    assert.equal(getEventListeners(signal, 'abort').length, 0, alone);
  }
  const limiter = new Limiter(1, 1000);
  await Promise.all(Array.from({ length: 20 }, () => limiter.wait(1, { signal })));
  assert.equal(getEventListeners(signal, 'abort').length, 0);
  await limits.close();
});

test('the place of a caller that left is freed when the answer comes', async () => {
  const { limits, next } = await gate();
  const leave = async () => {
    const leaving = new AbortController();
    const leaver = limits.check({ userId: 'holder' }, { signal: leaving.signal });
    return async (held: Held) => {
      leaving.abort(new Error('left'));
      await assert.rejects(leaver, /left/);
      held.let();
      const release = await next();
      assert.deepEqual([release.path, release.body], ['/v1/settle', '{"reservation":"a place"}']);
      release.let();
    };
  };
  const alone = await leave();
  await alone(await next());

  const others = [limits.check({}), limits.check({})];
  const theirs = [await next(), await next()];
  const shared = await leave();
  const waits = limits.check({});
  theirs[0]?.let();
  await shared(await next());
  theirs[1]?.let();
  await Promise.all([waits, ...others]);
});

test('a flood of one user is denied by the first denials and delays no other', async () => {
  const burst = 5;
  const flood = 12_000;
  const { limits, next, server } = await gate({ timeout: 300_000 }); // so that no more requests are added
  const results = Array.from({ length: flood - 1 }, () => limits.check({ userId: 'flood' }));
  results.push(limits.check({ userId: 'other' }));
  const alone = [await next(), await next()];
  alone[0]?.let();
  const batch = await next();
  assert.ok(batch.users.includes('other'));
  assert.ok(batch.users.length < 1000);
  batch.limit('flood', burst - 2);
  await Promise.all(results.slice(2));
  alone[1]?.let();
  const decisions = await Promise.all(results);
  assert.equal(decisions.filter(({ allowed }) => allowed).length, burst + 1);
  assert.ok(decisions.every(({ source }) => source === 'server' || source === 'memory'));
  assert.equal(server.requests.length, 3);
});

test('an overdue check waits for the answer to the same check if the server answers', async () => {
  const allowed = decode({ allowed: true }, 200) as Decision;
  const denied = decode({ allowed: false }, 429) as Decision;
  let answer = (_: Decision) => {};
  const late = new Promise<Decision>((resolve) => {
    answer = resolve;
  });
  let ready = (_: Decision) => {};
  const busy = new Promise<Decision>((resolve) => {
    ready = resolve;
  });
  const one = ({ identity }: Question) => ({ flood: late, busy })[identity] ?? Promise.resolve(allowed);
  const many = (questions: Question[]) => Promise.all(questions.map(one));
  const queue = new Queue(
    { one, many, unwanted: () => undefined },
    new Memory(5000),
    new Breaker(1000, () => 0),
    1000,
    true,
  );
  const ask = (identity: string) => queue.ask({ identity, body: '{}', cost: 1 });
  const [first, other, ...flood] = [ask('flood'), ask('busy'), ask('flood'), ask('flood')];
  ready(allowed);
  await other; // and the flood is sent
  const until = performance.now() + 1500;
  while (performance.now() < until) await ask('other');
  answer(denied);
  assert.deepEqual(
    (await Promise.all([first as Promise<Decision>, ...flood])).map(({ status }) => status),
    [429, 429, 429],
  );
});

function hanging(timeout: number) {
  const allowed = decode({ allowed: true }, 200) as Decision;
  let end = (_: Error) => {};
  const silence = new Promise<never>((_, reject) => {
    end = reject;
  });
  const one = ({ identity }: Question) => (identity === 'hangs' ? silence : Promise.resolve(allowed));
  const many = (questions: Question[]) => Promise.all(questions.map(one));
  const queue = new Queue(
    { one, many, unwanted: () => undefined },
    new Memory(5000),
    new Breaker(timeout, () => 0),
    timeout,
    true,
  );
  const ask = (identity: string) => queue.ask({ identity, body: '{}', cost: 1 });
  after(() => end(new Error('The test has ended.'))); // a queue watches its requests until they end
  return ask;
}

test('an overdue check is kept for ten time-outs at most', async () => {
  const ask = hanging(200);
  const [first, other, kept] = [ask('hangs'), ask('other'), ask('hangs')];
  first?.catch(() => undefined);
  let ended: unknown;
  kept?.catch((error) => {
    ended = error;
  });
  await other; // and the last one is sent
  const until = performance.now() + 30_000;
  while (!ended && performance.now() < until) {
    await ask('other').catch(() => undefined); // on a busy machine
    await sleep(1);
  }
  assert.ok(ended instanceof SluiceError && ended.kind === 'timeout', `${ended}`);
});

test('a check that stalls gets another request while overdue ones wait for a calm event loop', async () => {
  const ask = hanging(1000);
  const all = [ask('hangs'), ask('other'), ask('hangs')];
  for (const one of all) one.catch(() => undefined);
  await all[1]; // and the last one is sent
  const until = performance.now() + 1300;
  while (performance.now() < until); // a busy loop
  const order: string[] = [];
  const later = ask('later').then(() => order.push('answer'));
  await Promise.all([later, sleep(700).then(() => order.push('pause'))]);
  assert.deepEqual(order, ['answer', 'pause']);
});

test('an overdue check is not kept by a server that is silent', async () => {
  let end = (_: Error) => {};
  const silence = new Promise<never>((_, reject) => {
    end = reject;
  });
  const silent = () => silence;
  const queue = new Queue(
    { one: silent, many: silent, unwanted: () => undefined },
    new Memory(5000),
    new Breaker(20, () => 0),
    20,
    true,
  );
  const flood = Array.from({ length: 3 }, () => queue.ask({ identity: 'flood', body: '{}', cost: 1 }));
  await assert.rejects(flood[2] as Promise<Decision>, { kind: 'timeout' });
  end(new Error('The test has ended.')); // a queue watches its requests until they end
  await Promise.allSettled(flood);
});

test('too many of the same check are denied while the server answers', async () => {
  const { limits, next } = await gate({ timeout: 300_000 });
  const results = Array.from({ length: 16_384 + 3 }, () => limits.check({ userId: 'flood' }));
  const alone = [await next(), await next()];
  const { source, allowed } = (await results.at(-1)) as Decision;
  assert.deepEqual([source, allowed], ['failure_mode', true]); // the server has answered nothing
  alone[0]?.let();
  await results[0];
  const more = Array.from({ length: 300 }, () => limits.check({ userId: 'flood' }));
  const denied = (await more.at(-1)) as Decision;
  assert.deepEqual([denied.allowed, denied.status, denied.reason], [false, 429, 'too_many_waiting']);
  const batch = await next();
  batch.limit('flood', 0);
  await Promise.all(results.slice(2));
  alone[1]?.let();
});

test('a stalled event loop reads its answers before the time-out decides', async () => {
  const burst = 5;
  const users = Array.from({ length: 20 }, () => 'flood');
  const worker = new Worker(new URL('./bucket.js', import.meta.url), { workerData: burst });
  after(() => worker.terminate());
  const [url] = await once(worker, 'message');
  const limits = new Sluice({ url, key: testKey, timeout: 1000, logger: quiet });
  const results = users.map((userId) => limits.check({ userId }));
  const until = performance.now() + 1300;
  while (performance.now() < until); // a busy loop
  const decisions = await Promise.all(results);
  assert.equal(decisions.filter(({ allowed }) => allowed).length, burst);
  assert.ok(decisions.every(({ source }) => source === 'server' || source === 'memory'));
});

test('close waits for a report in flight', async () => {
  let answer = (_: Scripted) => {};
  let arrived = () => {};
  const hasArrived = new Promise<void>((resolve) => {
    arrived = resolve;
  });
  const server = await serve(
    () =>
      new Promise<Scripted>((resolve) => {
        answer = resolve;
        arrived();
      }),
  );
  const limits = new Sluice({ url: server.url, key: testKey, timeout: 30_000, logger: quiet });
  const order: string[] = [];
  const report = limits.report('search', [1]).then(() => order.push('report'));
  await hasArrived;
  const close = limits.close().then(() => order.push('close'));
  answer({ body: { accepted: 1, ignored: [] } });
  await Promise.all([report, close]);
  assert.deepEqual(order, ['report', 'close']);
});

for (const shared of [false, true]) {
  test(`close waits for the release of an abandoned check sent ${shared ? 'with others' : 'alone'}`, async () => {
    const { limits, next } = await gate();
    const leaving = new AbortController();
    const others = shared ? [limits.check({}), limits.check({})] : [];
    const theirs = shared ? [await next(), await next()] : [];
    const leaver = limits.check({ userId: 'holder' }, { signal: leaving.signal });
    theirs[0]?.let();
    const held = await next();
    theirs[1]?.let();
    await Promise.all(others);
    leaving.abort(new Error('left'));
    await assert.rejects(leaver, /left/);
    let closed = false;
    const close = limits.close().then(() => {
      closed = true;
    });
    held.let();
    const release = await next();
    assert.deepEqual([release.path, closed], ['/v1/settle', false]);
    release.let();
    await close;
  });
}

for (const kind of ['check', 'checkBatch']) {
  test(`one ${kind} after another asks a server that fails only after pauses`, async () => {
    const { limits, next, server } = await gate({ failureMode: 'closed' });
    let now = 0;
    limits.now = () => now;
    const check = async () => (kind === 'check' ? limits.check({}) : (await limits.checkBatch([{}]))[0]);
    const ask = async (status: number) => {
      const result = check();
      (await next()).let(status);
      assert.equal((await result)?.source, status === 200 ? 'server' : 'failure_mode');
    };
    const atOnce = async () => {
      const sent = server.requests.length;
      for (let i = 0; i < 100; i++) assert.equal((await check())?.status, 503);
      assert.equal(server.requests.length, sent);
    };
    for (let i = 0; i < 5; i++) await ask(500);
    for (let i = 0; i < 3; i++) {
      now += 2499; // half of the longest pause is over, and not yet more
      await atOnce();
      now += 2501;
      const probe = check();
      const probing = await next();
      await atOnce();
      probing.let(500);
      await probe;
    }
    now += 5000;
    for (let i = 0; i < 3; i++) await ask(200);
  });
}

test('batches that time out leave single checks to the server', async () => {
  const { limits } = await gate({ timeout: 20 });
  limits.now = () => 0;
  const tooEarly = /too early/;
  for (let i = 0; i < 6; i++) {
    const [first] = await limits.checkBatch([{}, {}]);
    assert.equal(tooEarly.test(first?.error?.message ?? ''), i === 5);
  }
  for (let i = 0; i < 4; i++) assert.doesNotMatch((await limits.check({})).error?.message ?? '', tooEarly);
});

test('pauses double from a time-out to ten, and the second half of each is jitter', () => {
  let now = 0;
  const breaker = new Breaker(100, () => now);
  for (let i = 0; i < 5; i++) breaker.ended(new Error());
  for (const pause of [100, 200, 400, 800, 1000, 1000]) {
    now += pause / 2 - 1;
    assert.throws(() => breaker.admit());
    now += pause / 2 + 1;
    breaker.admit();
    assert.throws(() => breaker.admit()); // one probe is enough
    breaker.ended(new Error());
  }
  breaker.ended(null);
  for (let i = 0; i < 5; i++) breaker.admit();
});

test('observers see every decision, and logs only the first failure and its end', async () => {
  let status = 500;
  const server = await serve(() => ({ status, body: { allowed: true } }));
  const seen: string[] = [];
  const log: string[] = [];
  const limits = new Sluice({
    url: server.url,
    key: testKey,
    timeout: 30_000,
    onDecision: ({ decision, took }) => seen.push(`${decision?.source} ${took >= 0}`),
    logger: { warn: (line) => log.push(line), info: (line) => log.push(line) },
  });
  let now = 0;
  limits.now = () => now;
  for (let i = 0; i < 3; i++) {
    status = 500;
    await limits.check({});
    status = 200;
    await limits.check({});
  }
  now += 1000;
  for (let i = 0; i < 2; i++) await limits.check({});
  const pairs = Array(3).fill(['failure_mode true', 'server true']).flat();
  assert.deepEqual(seen, [...pairs, ...Array(2).fill('server true')]);
  assert.equal(log.length, 2);
  assert.match(log[0] ?? '', /does not decide.*open.*unavailable \(500\)/);
  assert.match(log[1] ?? '', /decides again, after 3 checks/);
});

test('a closed client leaves the decision to the failure mode', async () => {
  const limits = new Sluice({ url: await goneUrl(), key: testKey, logger: quiet });
  limits.close();
  assert.equal((await limits.check({})).source, 'failure_mode');
});

test('the memory of denials is bounded', () => {
  const memory = new Memory(60_000);
  const denial = { ...(decode({ allowed: false }, 429) as Decision), reason: 'limit_exceeded', retryAfterMs: 60_000 };
  for (let i = 0; i < 30_000; i++) memory.learn({ identity: String(i), body: '', cost: 1 }, denial);
  assert.equal(memory.size, 10_000);
  assert.ok(memory.recall({ identity: '29999', body: '', cost: 1 }));
});

test('options that cannot work are refused, and the key is not named', () => {
  const good = { url: 'http://127.0.0.1:8080', key: testKey };
  for (const bad of [
    { url: '127.0.0.1:8080' },
    { url: `http://${testKey}@127.0.0.1` },
    { url: `${testKey}` },
    { key: '' },
    { key: `${testKey}\n` },
    { timeout: 0 },
    { timeout: Number.NaN },
    { timeout: Number.POSITIVE_INFINITY },
    { timeout: 2 ** 31 / 10 },
    { failureMode: 'ajar' as 'open' },
  ]) {
    assert.throws(
      () => new Sluice({ ...good, ...bad }),
      (error: Error) => error.message.startsWith('sluice: ') && !error.message.includes('topsecret'),
    );
  }
});

test('a cost that is no number is refused unsent', async () => {
  const limits = new Sluice({ url: await goneUrl(), key: testKey });
  await assert.rejects(limits.check({ cost: Number.NaN }), { kind: 'request' });
  await assert.rejects(limits.settle('r1', Number.POSITIVE_INFINITY), { kind: 'request' });
});

test('a check that no server takes is refused unsent', async () => {
  const limits = new Sluice({ url: await goneUrl(), key: testKey, logger: quiet });
  const many = (length: number, value: unknown) =>
    Object.fromEntries(Array.from({ length }, (_, i) => [`m${i}`, value])) as Record<string, never>;
  for (const [check, pointer] of [
    [{ userId: 'a\ud800' }, '/user_id'],
    [{ userId: 'a\0' }, '/user_id'],
    [{ userId: 'ü'.repeat(129) }, '/user_id'],
    [{ plan: 'x'.repeat(257) }, '/plan'],
    [{ endpoint: 'x'.repeat(1025) }, '/endpoint'],
    [{ endpoint: 5 as unknown as string }, '/endpoint'],
    [{ method: 'x'.repeat(33) }, '/method'],
    [{ method: 'G T' }, '/method'],
    ...['x', '1.2.3', '1.2.3.256', '01.2.3.4', '1.2.3.4:80', '::1%eth0', '[::1]', '::1/64', '1::2::3'].map(
      (ip) => [{ ip }, '/ip'] as const,
    ),
    [{ attributes: many(17, 'x') }, '/attributes'],
    [{ attributes: { 'a b': 'x' } }, '/attributes'],
    [{ attributes: { ['x'.repeat(65)]: 'x' } }, '/attributes'],
    [{ attributes: { a: 'x'.repeat(257) } }, '/attributes/a'],
    [{ attributes: { a: '\udfff' } }, '/attributes/a'],
    [{ cost: -1 }, '/cost'],
    [{ cost: 1.1e9 }, '/cost'],
    [{ costs: many(8, 1) }, '/costs'],
    [{ costs: { USD: 1 } }, '/costs'],
    [{ costs: { usd: -1 } }, '/costs/usd'],
  ] as const) {
    const refusal = (at: string) => (error: unknown) =>
      error instanceof SluiceError && error.kind === 'request' && error.fields[0]?.pointer === at;
    await assert.rejects(limits.check(check), refusal(pointer), JSON.stringify(check));
    await assert.rejects(limits.checkBatch([{}, check]), refusal(`/checks/1${pointer}`), JSON.stringify(check));
  }
  for (const hold of [-1, 86_400_001, Number.NaN])
    await assert.rejects(limits.reserve({}, { hold }), { kind: 'request' }, `${hold}`);
});

test('an answer to a report of another type is an error', async () => {
  for (const body of [{ accepted: '1' }, { accepted: true }, { accepted: [] }]) {
    const server = await serve(() => ({ body }));
    const limits = new Sluice({ url: server.url, key: testKey });
    await assert.rejects(
      limits.report('search', [1]),
      (error) => error instanceof SluiceError && error.kind === 'protocol',
    );
  }
});

test('reports count latencies by bucket', async () => {
  const server = await serve(() => ({ body: { accepted: 1, ignored: [] } }));
  const limits = new Sluice({ url: server.url, key: testKey });
  assert.equal(await limits.report('search', [0, 1, 300, 300.1, 90_000], 2), true);
  const want = { backend: 'search', requests: 5, errors: 2, latency_ms: { 1: 2, 300: 1, 500: 1, inf: 1 } };
  assert.equal(server.requests[0]?.path, '/v1/report');
  assert.deepEqual(JSON.parse(server.requests[0]?.body ?? ''), { reports: [want] });
});

test('a limiter allows a burst and then the rate', async () => {
  const limiter = new Limiter(5, 20); // 20 at once, then 5 a second
  let now = 0;
  limiter.now = () => now;
  const count = () => {
    let n = 0;
    while (limiter.allow()) n++;
    return n;
  };
  assert.equal(count(), 20);
  now += 1000;
  assert.equal(count(), 5);
  now += 3_600_000;
  assert.equal(count(), 20);
  now += 100;
  assert.equal(count(), 0);
  assert.equal(limiter.reserve(), 100);
  assert.equal(limiter.tokens, -0.5);
  assert.equal(limiter.reserve(21), null);
  assert.equal(limiter.allow(21), false);
  await assert.rejects(limiter.wait(21), RangeError);
  const leaving = new AbortController();
  const wait = limiter.wait(1, { signal: leaving.signal });
  assert.equal(limiter.tokens, -1.5);
  leaving.abort();
  await assert.rejects(wait);
  assert.equal(limiter.tokens, -0.5);
  assert.throws(() => new Limiter(0, 1), RangeError);
  assert.throws(() => new Limiter(1, 0), RangeError);
});

test('a limiter waits', async () => {
  const limiter = new Limiter(1000, 1);
  const began = performance.now();
  await Promise.all(Array.from({ length: 21 }, () => limiter.wait()));
  assert.ok(performance.now() - began >= 19);
});

test('a limiter waits for longer than a timer can', async (t) => {
  const timers: number[] = [];
  t.mock.method(globalThis, 'setTimeout', ((act: () => void, ms: number) => {
    timers.push(ms);
    queueMicrotask(act);
  }) as typeof setTimeout);
  const limiter = new Limiter(1e-7, 1); // a token in four months
  limiter.now = () => 0;
  limiter.allow();
  await limiter.wait();
  const most = 2 ** 31 - 1;
  assert.deepEqual(timers, [most, most, most, most, 1e10 - 4 * most]);
});

test('the version is that of the package', () => {
  const { version: packaged } = JSON.parse(readFileSync(join(import.meta.dirname, '../../package.json'), 'utf8'));
  assert.equal(version, packaged);
});
