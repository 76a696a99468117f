import assert from 'node:assert/strict';
import { EventEmitter } from 'node:events';
import type { AddressInfo } from 'node:net';
import { after, test } from 'node:test';
import express from 'express';
import { rateLimit } from 'express-rate-limit';
import { limit } from '../src/express.js';
import { SluiceStore } from '../src/express-rate-limit.js';
import { Sluice } from '../src/index.js';
import { type Scripted, serve, testKey } from './server.js';

const quiet = { warn: () => undefined, info: () => undefined };

async function listen(app: express.Express): Promise<string> {
  const server = app.listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  after(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

async function ask(answer: Scripted, options: { failureMode?: 'open' | 'closed' } = {}, user = '42') {
  const server = await serve(({ path }) => (path === '/v1/settle' ? { body: { settled: true } } : answer));
  const limits = new Sluice({ url: server.url, key: testKey, timeout: 30_000, logger: quiet, ...options });
  const app = express();
  app.use(limit(limits, (request: express.Request) => (user ? { userId: user, endpoint: request.path } : null)));
  app.get('/api/reports', (_, response) => {
    response.sendStatus(204);
  });
  const began = performance.now();
  const response = await fetch(`${await listen(app)}/api/reports`);
  return { response, body: await response.text(), took: performance.now() - began, server };
}

test('what is allowed passes, and is told what is left', async () => {
  const { response } = await ask({ body: { allowed: true, limit: 50, remaining: 49, reset_after_ms: 100 } });
  assert.equal(response.status, 204);
  assert.equal(response.headers.get('x-ratelimit-limit'), '50');
  assert.equal(response.headers.get('x-ratelimit-remaining'), '49');
  assert.ok(Number(response.headers.get('x-ratelimit-reset')) >= Date.now() / 1000 - 60);
  assert.equal(response.headers.get('retry-after'), null);
});

test('a denial is a 429 with a wait in whole seconds, rounded up', async () => {
  const tier = { mode: 'enforce', allowed: true, retry_after_ms: 0, reset_after_ms: 1 };
  const tiers = [
    {
      ...tier,
      rule_id: 12,
      scope: 'user',
      allowed: false,
      limit: 3,
      remaining: 0.5,
      window_ms: 30_000,
      more_after_ms: 9001,
    },
    { ...tier, rule_id: 13, scope: 'ip', limit: 50, remaining: 7.5, window_ms: 100, more_after_ms: 0 },
    { ...tier, rule_id: 14, scope: 'global', mode: 'shadow', window_ms: 1000 },
  ];
  const denial = { allowed: false, reason: 'limit_exceeded', limit: 3, remaining: 0, retry_after_ms: 9001, tiers };
  const { response, body } = await ask({ status: 429, body: denial });
  assert.equal(response.headers.get('ratelimit-policy'), '"user-12";q=3;w=30, "ip-13";q=50;w=1');
  assert.equal(response.headers.get('ratelimit'), '"user-12";r=0;t=10, "ip-13";r=7;t=0');
  assert.equal(response.headers.get('cache-control'), 'no-store');
  assert.equal(JSON.parse(body).type, 'https://iana.org/assignments/http-problem-types#quota-exceeded');
  assert.deepEqual(JSON.parse(body)['violated-policies'], ['user-12']);
  assert.equal(response.status, 429);
  assert.equal(response.headers.get('retry-after'), '10');
  assert.equal(response.headers.get('content-type'), 'application/problem+json');
  assert.equal(JSON.parse(body).status, 429);
});

test('a wait has the jitter of the server, also of a remembered denial', async () => {
  for (const [retry_after_ms, retry_jitter_percent, want] of [
    [100_000, undefined, '100'],
    [100_000, 0.01, '101'],
    [100_000, 12.34, '113'],
    [10_000, 10, '11'],
    [86_400_000, 50, '129600'],
    [100_000, 1000, '150'],
    [100_000, -1, '100'],
  ] as const) {
    const denial = { allowed: false, reason: 'limit_exceeded', limit: 3, retry_after_ms, retry_jitter_percent };
    const server = await serve(() => ({ status: 429, body: denial }));
    const limits = new Sluice({ url: server.url, key: testKey, timeout: 30_000, logger: quiet });
    const app = express();
    app.use(limit(limits, () => ({ userId: '42' })));
    const url = await listen(app);
    assert.equal((await fetch(url)).headers.get('retry-after'), want);
    const remembered = Number((await fetch(url)).headers.get('retry-after'));
    const { resetTime } = await new SluiceStore(limits).increment('42');
    const stored = ((resetTime?.getTime() ?? 0) - Date.now()) / 1000;
    for (const wait of [remembered, stored])
      assert.ok(wait <= Number(want) && wait > (Number(want) * 4) / 5, `${wait}`);
    assert.equal(server.requests.length, 1);
  }
});

test('no wait is promised where none helps', async () => {
  const denial = { allowed: false, reason: 'blocked', retry_after_ms: null };
  const { response, body } = await ask({ status: 429, body: denial });
  assert.equal(JSON.parse(body).type, 'urn:sluice:problem:blocked');
  assert.deepEqual([response.status, response.headers.get('retry-after')], [429, null]);
});

test('what identify leaves out passes unasked', async () => {
  const { response, server } = await ask({ status: 429 }, {}, '');
  assert.deepEqual([response.status, server.requests.length], [204, 0]);
});

test('when nobody decides, open passes and closed answers 503', async () => {
  assert.equal((await ask({ fault: 'reset' })).response.status, 204);
  const { response } = await ask({ fault: 'reset' }, { failureMode: 'closed' });
  assert.deepEqual([response.status, response.headers.get('retry-after')], [503, '1']);
});

test('what cannot be asked is a 400', async () => {
  assert.equal((await ask({ status: 400, body: { type: 'urn:x' } })).response.status, 400);
});

test('it waits for its turn, and releases its place', async () => {
  const { response, took, server } = await ask({ body: { allowed: true, delay_ms: 50, reservation: 'r1' } });
  assert.equal(response.status, 204);
  assert.ok(took >= 49, `it took ${took} ms`);
  while (server.requests.length < 2) await new Promise((resolve) => setTimeout(resolve, 5));
  assert.equal(server.requests[1]?.path, '/v1/settle');
  assert.equal(server.requests[1]?.body, '{"reservation":"r1"}');
});

test('for a caller that has gone nothing is asked', async () => {
  const server = await serve(() => ({ body: { allowed: true } }));
  const middleware = limit(new Sluice({ url: server.url, key: testKey, timeout: 30_000 }), () => ({}));
  const answer = Object.assign(new EventEmitter(), {
    ...{ statusCode: 200, closed: true, setHeader: () => undefined, end: () => undefined },
  });
  await middleware({}, answer, () => assert.fail('it goes on'));
  answer.closed = false;
  const leaves = limit(new Sluice({ url: server.url, key: testKey, timeout: 30_000 }), () => {
    answer.emit('close'); // while it is identified
    return {};
  });
  await leaves({}, answer, () => assert.fail('it goes on'));
  assert.equal(server.requests.length, 0);
});

test('an error of identify goes to the error handler', async () => {
  const app = express();
  const limits = new Sluice({ url: 'http://127.0.0.1:1', key: testKey });
  app.use(
    limit(limits, () => {
      throw new Error('no user');
    }),
  );
  app.use((error: Error, _: express.Request, response: express.Response, _next: express.NextFunction) => {
    response.status(500).send(error.message);
  });
  const response = await fetch(await listen(app));
  assert.deepEqual([response.status, await response.text()], [500, 'no user']);
});

test('express-rate-limit answers what Sluice decides', async () => {
  let left = 2;
  const server = await serve(() => {
    if (left === 0)
      return {
        status: 429,
        body: { allowed: false, reason: 'limit_exceeded', limit: 2, remaining: 0, retry_after_ms: 9001 },
      };
    return { body: { allowed: true, limit: 2, remaining: --left, reset_after_ms: 10_000 } };
  });
  const limits = new Sluice({ url: server.url, key: testKey, timeout: 30_000 });
  const app = express();
  app.use(
    rateLimit({
      limit: 2,
      windowMs: 60_000,
      standardHeaders: 'draft-6',
      legacyHeaders: true,
      store: new SluiceStore(limits),
      keyGenerator: () => '42',
    }),
  );
  app.get('/', (_, response) => {
    response.sendStatus(204);
  });
  const url = await listen(app);
  const answers = [await fetch(url), await fetch(url), await fetch(url)];
  assert.deepEqual(
    answers.map(({ status, headers }) => [status, headers.get('x-ratelimit-remaining')]),
    [
      [204, '1'],
      [204, '0'],
      [429, '0'],
    ],
  );
  const wait = Number(answers[2]?.headers.get('retry-after'));
  assert.ok(wait >= 9 && wait <= 10, `Retry-After is ${wait}`);
  assert.equal(JSON.parse(server.requests[0]?.body ?? '').user_id, '42');
  assert.throws(() => new SluiceStore(limits).init({ skipFailedRequests: true }), TypeError);
});

test('express-rate-limit lets pass what Sluice allows, whatever its own limit is', async () => {
  const server = await serve(() => ({ body: { allowed: true, limit: 1000, remaining: 10, reset_after_ms: 10_000 } }));
  for (const [limit, remaining] of [
    [50, '0'],
    [2000, '1010'],
    [() => 50, '49'],
  ] as const) {
    const limits = new Sluice({ url: server.url, key: testKey, timeout: 30_000 });
    const app = express();
    app.use(rateLimit({ limit, store: new SluiceStore(limits), keyGenerator: () => '42' }));
    app.get('/', (_, response) => {
      response.sendStatus(204);
    });
    const { status, headers } = await fetch(await listen(app));
    assert.deepEqual([status, headers.get('x-ratelimit-remaining')], [204, remaining], `${limit}`);
  }
});
