import { afterEach, expect, test, vi } from 'vitest';
import { send } from './client';
import { answerProof } from './proof';

const address = 'http://localhost/api/v1/tenants/acme/api-keys';

afterEach(() => vi.unstubAllGlobals());

/** Answers each request in turn; null: the answer is lost. */
function server(...answers: (Response | null)[]) {
  const keys: (string | null)[] = [];
  vi.stubGlobal('fetch', async (request: Request) => {
    keys.push(request.headers.get('Idempotency-Key'));
    await request.text();
    const answer = answers[keys.length - 1];
    if (!answer) throw new TypeError('the answer was lost');
    return answer;
  });
  return keys;
}

const running = () => new Response('{"type":"urn:sluice:problem:request-in-progress"}', { status: 409 });

test('a POST whose answer is lost is sent again with the same key', async () => {
  const keys = server(null, running(), new Response('{}', { status: 201 }));
  const answer = await send(new Request(address, { method: 'POST', body: '{}' }));
  expect(answer.status).toBe(201);
  expect(keys).toHaveLength(3);
  expect(new Set(keys).size).toBe(1);
  expect(keys[0]?.length).toBeGreaterThanOrEqual(16);
});

test('a refusal is an answer, and two POSTs have two keys', async () => {
  const keys = server(new Response('{"type":"urn:sluice:problem:conflict"}', { status: 409 }), new Response('{}'));
  expect((await send(new Request(address, { method: 'POST', body: '{}' }))).status).toBe(409);
  await send(new Request(address, { method: 'POST', body: '{}' }));
  expect(new Set(keys).size).toBe(2);
});

test('other methods, and sign-in, are sent once and without a key', async () => {
  const keys = server(null, null);
  await expect(send(new Request(address))).rejects.toThrow();
  await expect(send(new Request('http://localhost/api/v1/session', { method: 'POST', body: '{}' }))).rejects.toThrow();
  expect(keys).toEqual([null, null]);
});

test('a request that wants its sender to sign in again is sent once more, as it was', async () => {
  const refusal = () => new Response('{"type":"urn:sluice:problem:fresh-proof-required"}', { status: 403 });
  const keys = server(refusal(), new Response('{}', { status: 201 }));
  const created = send(new Request(address, { method: 'POST', body: '{}' }));
  await vi.waitFor(() => {
    answerProof(true); // once it is asked for
    expect(keys).toHaveLength(2);
  });
  expect((await created).status).toBe(201);
  expect(keys[1]).toBe(keys[0]);

  server(refusal());
  let status = 0;
  const given = send(new Request(address, { method: 'DELETE' })).then((answer) => {
    status = answer.status;
  });
  await vi.waitFor(() => {
    answerProof(false);
    expect(status).toBe(403);
  });
  await given;
});

test('a request that nobody answers ends, so that the screen says so', async () => {
  vi.useFakeTimers();
  try {
    vi.stubGlobal('fetch', (_: Request, { signal }: RequestInit = {}) => {
      return new Promise((_resolve, reject) => signal?.addEventListener('abort', () => reject(signal.reason)));
    });
    const answer = expect(send(new Request(address))).rejects.toThrow('No answer in time');
    await vi.advanceTimersByTimeAsync(32_000);
    await answer;

    // The server may take two minutes for a file.
    const upload = new Request(`${address}/import`, { method: 'POST' });
    let failure: unknown;
    send(upload).catch((error) => {
      failure = error;
    });
    await vi.advanceTimersByTimeAsync(120_000);
    expect(failure).toBeUndefined();
  } finally {
    vi.useRealTimers();
  }
});
