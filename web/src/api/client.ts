import createClient, { type Middleware } from 'openapi-fetch';
import { noteAway } from './away';
import { noteBusy } from './busy';
import { noteServerTime } from './clock';
import { AwayError, isKind, limitExceeded, problemOf } from './problem';
import { askForProof } from './proof';
import type { paths } from './schema';

/**
 * The API client, typed by api/openapi.yaml and authenticated by the session cookie. A call returns its data or throws:
 * ProblemError for an error response, AwayError for none. Screens never look at an error's status.
 */
export const api = createClient<paths>({
  baseUrl: globalThis.location?.origin ?? 'http://localhost',
  fetch: send,
});

/** A random id. crypto.randomUUID exists only on HTTPS pages. */
export function randomID(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, '0')).join('');
}

/**
 * How long an answer may take to begin, in milliseconds. The server answers within 30 s or not at all; it gives a file
 * 2.5 minutes. A request that is repeated has this long each time.
 */
function patienceFor({ method, url }: Request): number {
  if (method === 'POST' && /\/import$/.test(new URL(url).pathname)) return 160_000;
  return 32_000;
}

/** How often and after how long a lost answer is asked for again. */
const repeats = [300, 1000, 3000];

/**
 * Sends a request. If the server wants its sender to sign in again, a dialog asks them, and the same request is sent
 * once
 * more.
 */
export async function send(request: Request): Promise<Response> {
  if (request.method === 'GET') {
    // A screen asks for a dozen things at once. Sending each is a task of its own, between which the browser can
    // answer.
    const { scheduler } = globalThis as { scheduler?: { yield?: () => Promise<void> } };
    await scheduler?.yield?.();
    return timed(request);
  }
  if (request.method === 'POST' && isRepeatable(request.url) && !request.headers.has('Idempotency-Key'))
    request.headers.set('Idempotency-Key', randomID());
  const response = await sendOnce(request.clone());
  if (!(await isProblem(response, 403, 'fresh-proof-required')) || !(await askForProof())) return response;
  return sendOnce(request);
}

/**
 * Sends a request. When the answer to one with an Idempotency-Key is lost, it is sent again: the server carries it out
 * once, and answers as it did or would have.
 */
async function sendOnce(request: Request): Promise<Response> {
  if (!request.headers.has('Idempotency-Key')) return timed(request);
  for (const pause of repeats) {
    try {
      const response = await timed(request.clone());
      if (!(await isProblem(response, 409, 'request-in-progress'))) return response;
    } catch (error) {
      if (request.signal.aborted) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
  return timed(request);
}

async function timed(request: Request): Promise<Response> {
  const sent = Date.now();
  const late = new AbortController();
  const end = (reason: unknown) => late.abort(reason);
  if (request.signal.aborted) end(request.signal.reason);
  request.signal.addEventListener('abort', () => end(request.signal.reason), { once: true });
  // A stream that began goes on.
  const timer = setTimeout(end, patienceFor(request), new DOMException('No answer in time', 'TimeoutError'));
  const response = await globalThis.fetch(request, { signal: late.signal }).finally(() => clearTimeout(timer));
  noteServerTime(response.headers.get('Date'), sent, Date.now());
  return response;
}

/** Sign-in and the like are for anyone: the server keeps no answers for strangers. */
function isRepeatable(url: string): boolean {
  return /\/api\/v1\/(tenants|service-keys)(\/|$)/.test(new URL(url).pathname);
}

async function isProblem(response: Response, status: number, kind: string): Promise<boolean> {
  if (response.status !== status) return false;
  const problem = await response
    .clone()
    .json()
    .catch(() => null); // of a proxy
  return problem?.type === `urn:sluice:problem:${kind}`;
}

const errors: Middleware = {
  async onResponse({ response }) {
    if (response.ok || response.status === 304) {
      noteAway(false);
      return undefined;
    }
    const problem = await problemOf(response);
    noteAway(problem instanceof AwayError);
    if (isKind(problem, limitExceeded)) noteBusy(problem);
    throw problem;
  },
  onError({ error }) {
    if (error instanceof DOMException && error.name === 'AbortError') return undefined;
    noteAway(true);
    return new AwayError(error);
  },
};
api.use(errors);

interface Answer<T> {
  data?: T;
  response: Response;
}

/** The id of the request that each answer came to. */
const requests = new WeakMap<object, string>();

/** The id of the request of an answer: a response, or the data of one. */
export function requestOf(answer: object | null | undefined): string | undefined {
  if (answer instanceof Response) return answer.headers.get('X-Request-Id') ?? undefined;
  return answer ? requests.get(answer) : undefined;
}

export async function body<T>(call: Promise<Answer<T>>): Promise<T> {
  const { data, response } = await call;
  const request = requestOf(response);
  if (request && typeof data === 'object' && data !== null) requests.set(data, request);
  return data as T;
}

export interface Tagged<T> {
  value: T;
  etag: string;
}

export async function tagged<T>(call: Promise<Answer<T>>): Promise<Tagged<T>> {
  const value = await body(call);
  return { value, etag: (await call).response.headers.get('ETag') ?? '' };
}

/** The header of an update, which fails with 412 if somebody else saved first. */
export function ifMatch(etag: string): { 'If-Match': string } {
  return { 'If-Match': etag };
}

export function etagOf({ version }: { version: number }): string {
  return `"${version}"`;
}
