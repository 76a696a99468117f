/** The client on a real Sluice, `sluice dev`, behind a proxy that can fail. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';
import { Sluice, SluiceError } from '../src/index.js';
import { demoKey, proxy, startSluice } from './server.js';

let sluice: Awaited<ReturnType<typeof startSluice>>;
before(async () => {
  sluice = await startSluice();
});
after(() => sluice?.stop());

const quiet = { warn: () => undefined, info: () => undefined };
const patient = { key: demoKey, timeout: 30_000, logger: quiet };

test('the fourth report is denied, and waiting is enough', async () => {
  const limits = new Sluice({ ...patient, url: sluice.url });
  const report = { userId: 'js', endpoint: '/api/reports', cost: 0.1 };
  let denied = await limits.check(report);
  let passed = 0;
  for (; denied.allowed && passed < 100; passed++) {
    assert.equal(denied.source, 'server');
    denied = await limits.check(report);
  }
  assert.ok(passed >= 30, `${passed} passed`); // and some more are earned meanwhile
  assert.deepEqual(
    [denied.allowed, denied.reason, denied.violatedRule, denied.limit, denied.plan],
    [false, 'limit_exceeded', 'user:{user_id}:endpoint:/api/reports', 3, 'free'],
  );
  assert.ok(denied.tiers.length > 3);
  assert.equal((await limits.check(report)).source, 'memory');
  assert.equal((await limits.check({ ...report, cost: 0 })).source, 'server'); // a look
  const wait = denied.retryAfterMs ?? 0;
  assert.ok(wait > 0 && wait <= 1000, `the wait is ${wait} ms`);
  await new Promise((resolve) => setTimeout(resolve, wait)); // the promise is that this very wait is enough
  assert.equal((await limits.check(report)).allowed, true);
});

test('the code that the web UI shows compiles and runs', async () => {
  const shown = join(import.meta.dirname, '../../../testdata/snippets');
  const folder = join(import.meta.dirname, '../snippets'); // within this package, which its own name then means
  await mkdir(folder, { recursive: true });
  const node = async (...args: string[]) => {
    const env = { ...process.env, SLUICE_KEY: demoKey };
    return (await promisify(execFile)(process.execPath, args, { env, cwd: folder })).stdout;
  };
  for (const name of ['plain', 'every']) {
    const code = await readFile(join(shown, `${name}.ts`), 'utf8');
    const here = code.replace('url: "http://127.0.0.1:8080"', `url: "${sluice.url}", timeout: 30_000`);
    await writeFile(join(folder, `${name}.ts`), here);
  }
  const compiler = join(import.meta.dirname, '../../node_modules/typescript/bin/tsc');
  const options = '--strict --skipLibCheck --types node --target es2022 --module nodenext plain.ts every.ts';
  await node(compiler, ...options.split(' '));
  for (let i = 0; i < 3; i++) assert.equal(await node('plain.js'), 'allowed\n');
  let printed = 'allowed\n';
  // some more are earned meanwhile
  for (let i = 0; printed === 'allowed\n' && i < 30; i++) printed = await node('plain.js');
  assert.match(printed, /^denied, wait [\d.]+ ms\n$/);
  assert.equal(await node('every.js'), 'allowed\n');
  // The bucket of that user has lost tokens, so the check was as in the file.
  const { user_id: userId, ...check } = JSON.parse(await readFile(join(shown, 'every.json'), 'utf8'));
  const look = await new Sluice({ ...patient, url: sluice.url }).check({ ...check, userId, cost: 0 });
  assert.equal(look.remaining, 0);
});

test('concurrent checks keep their answers apart, and a bad one fails alone', async () => {
  const limits = new Sluice({ ...patient, url: sluice.url });
  const users = Array.from({ length: 20 }, (_, i) => `crowd-${i}`);
  const bad = limits.check({ userId: 'x', plan: 'none' });
  const checks = users.flatMap((userId) =>
    Array.from({ length: 5 }, () => limits.check({ userId, endpoint: '/api/reports' })),
  );
  await assert.rejects(bad, (error) => error instanceof SluiceError && error.fields[0]?.pointer === '/plan');
  const passed = (await Promise.all(checks)).map(({ allowed }) => allowed);
  users.forEach((user, i) => {
    assert.equal(passed.slice(5 * i, 5 * i + 5).filter(Boolean).length, 3, user);
  });
});

test('a batch is decided in order', async () => {
  const limits = new Sluice({ ...patient, url: sluice.url });
  const report = { userId: 'batch', endpoint: '/api/reports', cost: 2 };
  const decisions = await limits.checkBatch([report, report, { ...report, cost: 1 }]);
  assert.deepEqual(
    decisions.map(({ allowed }) => allowed),
    [true, false, true],
  );
  await assert.rejects(limits.checkBatch([report, { plan: 'none' }]), { kind: 'request' });
});

test('the server takes what the client does, at its bounds', async () => {
  const limits = new Sluice({ ...patient, url: sluice.url });
  const long = { userId: 'ü'.repeat(128), endpoint: '€'.repeat(341), method: "!#$%&'*+-.^_`|~" };
  const attributes = Object.fromEntries(
    Array.from({ length: 16 }, (_, i) => [`a-b.C_${i}`.padEnd(64, 'x'), '😀'.repeat(64)]),
  );
  const costs = Object.fromEntries(Array.from({ length: 7 }, (_, i) => [`m_${i}`.padEnd(32, 'x'), 1e9]));
  assert.equal((await limits.reserve({ ...long, attributes, costs }, { hold: 86_400_000 })).source, 'server');
  for (const ip of ['0.10.199.255', '::', '1::', '::FFFF:1.2.3.4', '1:2:3:4:5:6:7::', '1:2:3:4:5:6:1.2.3.4']) {
    assert.equal((await limits.check({ ip, cost: 0 })).source, 'server', ip);
  }
});

test('reservations are settled, and usage is told', async () => {
  const limits = new Sluice({ ...patient, url: sluice.url });
  const report = { userId: 'js a&b', endpoint: '/api/reports' };
  const reserve = async (cost: number) => {
    const { allowed, reservation } = await limits.reserve({ ...report, cost }, { hold: 90_000 });
    assert.ok(allowed && reservation);
    return reservation;
  };
  const none = { settled: false, charged: 0, costs: {}, extended: false, denied: false };
  const reservation = await reserve(2);
  assert.deepEqual(await limits.extend(reservation), { ...none, extended: true });
  assert.deepEqual(await limits.settle(reservation, 0.5), { ...none, settled: true, charged: 0.5 });
  assert.deepEqual(await limits.settle(reservation, 0.5), none);
  assert.deepEqual(await limits.extend(reservation), none);
  assert.deepEqual(await limits.cancel(await reserve(1)), { ...none, settled: true });
  assert.deepEqual(await limits.release(await reserve(0.5)), { ...none, settled: true, charged: 0.5 });
  const usage = (await limits.usage('js a&b')) as {
    user_id: string;
    limits: { key_pattern: string; limit: number; used: number }[];
  };
  const own = usage.limits.find(({ key_pattern }) => key_pattern === 'user:{user_id}:endpoint:/api/reports');
  assert.deepEqual([usage.user_id, own?.limit], ['js a&b', 3]);
  assert.ok(own && own.used > 0 && own.used <= 1, JSON.stringify(own));
});

test('a wrong key is named, without the key', async () => {
  const limits = new Sluice({
    ...patient,
    url: sluice.url,
    key: demoKey.replace('0123', '9999'),
    failureMode: 'closed',
  });
  const { allowed, status, error } = await limits.check({ userId: '42' });
  assert.deepEqual([allowed, status, error?.kind], [false, 503, 'key']);
  assert.doesNotMatch(String(error), /99994567/);
});

test('nobody waits longer than the time-out while the server is away, and all recover', async () => {
  const between = await proxy(sluice.url);
  const timeout = 250;
  const limits = new Sluice({ ...patient, url: between.url, timeout });
  const counts = { server: 0, memory: 0, failure_mode: 0 };
  let longest = 0;
  let stop = false;
  const load = Array.from({ length: 32 }, async (_, i) => {
    while (!stop) {
      const began = performance.now();
      const { allowed, source } = await limits.check({ userId: `load-${i}`, cost: 0 });
      longest = Math.max(longest, performance.now() - began);
      assert.ok(allowed, 'open is to pass');
      counts[source]++;
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
  });
  const grows = async (source: keyof typeof counts) => {
    const wanted = counts[source] + 100;
    const deadline = Date.now() + 30_000;
    while (counts[source] < wanted) {
      assert.ok(Date.now() < deadline, `no more decisions of ${source}`);
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  };
  await grows('server');
  for (const fail of [between.gone, between.hang]) {
    await fail();
    await grows('failure_mode');
    await between.back();
    await grows('server');
  }
  stop = true;
  await Promise.all(load);
  // where tests run in parallel, processors are scarce
  assert.ok(longest < timeout + 500, `the longest wait was ${longest} ms`);
});
