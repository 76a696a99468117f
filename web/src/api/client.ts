import createClient, { type Middleware } from 'openapi-fetch';
import type {
  HttpMethod,
  OperationRequestBodyContent,
  PathsWithMethod,
  SuccessResponse,
} from 'openapi-typescript-helpers';
import { away, noteBusy } from './availability';
import { noteServerTime } from './clock';
import { AwayError, isKind, limitExceeded, problemOf } from './problem';
import { askForProof } from './proof';
import type { paths } from './schema';

/** crypto.randomUUID exists only on HTTPS pages. */
export function randomID(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** Milliseconds until an answer must have begun. The server answers within 30 s, and imports within 2.5 minutes. */
function patienceFor({ method, url }: Request): number {
  if (method === 'POST' && /\/import$/.test(new URL(url).pathname)) return 160_000;
  return 32_000;
}

const repeats = [300, 1000, 3000];

/** Sends a request. If the server wants a recent sign-in, a dialog asks for it, and the request is sent once more. */
export async function send(request: Request): Promise<Response> {
  if (request.method === 'GET') {
    // Each of a screen's dozen requests is a task of its own, so that the browser can answer in between.
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

/** When the answer to a request with an Idempotency-Key is lost, it is sent again. */
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
  // Ends before a stream does, which goes on.
  const timer = setTimeout(end, patienceFor(request), new DOMException('No answer in time', 'TimeoutError'));
  const response = await globalThis.fetch(request, { signal: late.signal }).finally(() => clearTimeout(timer));
  noteServerTime(response.headers.get('Date'), sent, Date.now());
  return response;
}

/** The server keeps answers of signed-in callers only. */
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
      away.set(false);
      return undefined;
    }
    const problem = await problemOf(response);
    away.set(problem instanceof AwayError);
    if (isKind(problem, limitExceeded)) noteBusy(problem);
    throw problem;
  },
  onError({ error }) {
    if (error instanceof DOMException && error.name === 'AbortError') return undefined;
    away.set(true);
    return new AwayError(error);
  },
};
const client = createClient<paths>({ baseUrl: globalThis.location?.origin ?? 'http://localhost', fetch: send });
client.use(errors);

type Operation<Path extends keyof paths, M extends HttpMethod> = paths[Path] extends Record<M, infer O> ? O : never;

type Known<T> = [NonNullable<T>] extends [never] ? unknown : NonNullable<T>;

type Parameters<O> = O extends { parameters: { path?: infer P; query?: infer Q } } ? Known<P> & Known<Q> : unknown;

type Etag<O> = O extends { parameters: { header: { 'If-Match': string } } } ? { etag: string } : { etag?: string };

type Body<O> = [NonNullable<OperationRequestBodyContent<O>>] extends [never]
  ? unknown
  : { body: NonNullable<OperationRequestBodyContent<O>> };

type Sent<O> = Parameters<O> &
  Etag<O> &
  Body<O> & {
    headers?: Record<string, string>;
    signal?: AbortSignal;
    parseAs?: 'blob' | 'stream';
    bodySerializer?: (body: string) => string;
  };

type Data<O> = O extends { responses: infer R extends Record<number, unknown> } ? SuccessResponse<R> : never;

type Answer<O> = [Data<O>] extends [never | undefined] ? Response : NonNullable<Data<O>>;

const responses = new WeakMap<object, Response>();

function method<M extends HttpMethod>(name: M) {
  return async <Path extends PathsWithMethod<paths, M>>(
    path: Path,
    ...[given]: Record<never, never> extends Sent<Operation<Path, M>>
      ? [Sent<Operation<Path, M>>?]
      : [Sent<Operation<Path, M>>]
  ): Promise<Answer<Operation<Path, M>>> => {
    const { etag, body, headers, signal, parseAs, bodySerializer, ...named } = (given ?? {}) as Record<string, never>;
    const isInPath = ([parameter]: [string, unknown]) => path.includes(`{${parameter}}`);
    const entries = Object.entries(named);
    const { data, response } = await client.request(
      name,
      path as never,
      {
        params: {
          path: Object.fromEntries(entries.filter(isInPath)),
          query: Object.fromEntries(entries.filter((entry) => !isInPath(entry))),
          header: etag === undefined ? {} : { 'If-Match': etag },
        },
        ...{ body, headers, signal, parseAs, bodySerializer },
      } as never,
    );
    if (typeof data === 'object' && data !== null) responses.set(data, response);
    return (data ?? response) as never;
  };
}

/** The API client. A call returns its data or throws: ProblemError for an error response, AwayError for none. */
export const api = {
  get: method('get'),
  post: method('post'),
  put: method('put'),
  patch: method('patch'),
  delete: method('delete'),
};

export function headerOf(answer: object, name: string): string | null {
  return (answer instanceof Response ? answer : responses.get(answer))?.headers.get(name) ?? null;
}

export function requestOf(answer: object | null | undefined): string | undefined {
  return (answer && headerOf(answer, 'X-Request-Id')) ?? undefined;
}

export interface Tagged<T> {
  value: T;
  etag: string;
}

export async function tagged<T extends object | null>(call: Promise<T>): Promise<Tagged<T>> {
  const value = await call;
  return { value, etag: (value && headerOf(value, 'ETag')) ?? '' };
}

export function etagOf({ version }: { version: number }): string {
  return `"${version}"`;
}
