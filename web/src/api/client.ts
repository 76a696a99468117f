import createClient, { type Middleware } from 'openapi-fetch';
import { noteAway } from './away';
import { AwayError, problemOf } from './problem';
import type { paths } from './schema';

/**
 * The API client, typed by api/openapi.yaml and authenticated by the session cookie. A call returns its data
 * or throws: ProblemError for an error response, AwayError for none. So screens never look at a status.
 */
export const api = createClient<paths>({
  baseUrl: globalThis.location?.origin ?? 'http://localhost',
  fetch: send,
});

/** How often and after how long a lost answer is asked for again. */
const repeats = [300, 1000, 3000];

/**
 * Sends a request. A POST carries an Idempotency-Key, so when its answer is lost it is sent again: the server carries it
 * out once, and answers as it did or would have.
 */
export async function send(request: Request): Promise<Response> {
  if (request.method !== 'POST' || !isRepeatable(request.url)) return globalThis.fetch(request);
  if (!request.headers.has('Idempotency-Key')) request.headers.set('Idempotency-Key', crypto.randomUUID());
  for (const pause of repeats) {
    try {
      const response = await globalThis.fetch(request.clone());
      if (!(await isStillRunning(response))) return response;
    } catch (error) {
      if (request.signal.aborted) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
  return globalThis.fetch(request);
}

/** Sign-in and the like are for anyone: the server keeps no answers for strangers. */
function isRepeatable(url: string): boolean {
  return /\/api\/v1\/(tenants|service-keys)(\/|$)/.test(new URL(url).pathname);
}

/** The first request, whose answer was lost, is still being carried out. */
async function isStillRunning(response: Response): Promise<boolean> {
  if (response.status !== 409) return false;
  const problem = await response.clone().json();
  return problem?.type === 'urn:sluice:problem:request-in-progress';
}

const errors: Middleware = {
  async onResponse({ response }) {
    if (response.ok) {
      noteAway(false);
      return undefined;
    }
    const problem = await problemOf(response);
    noteAway(problem instanceof AwayError);
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

/** The data of a call: `await body(api.GET('/api/v1/tenants'))`. */
export async function body<T>(call: Promise<Answer<T>>): Promise<T> {
  return (await call).data as T;
}

/** A resource with its ETag, which an update sends as If-Match. */
export interface Tagged<T> {
  value: T;
  etag: string;
}

/** The data of a call with its ETag. */
export async function tagged<T>(call: Promise<Answer<T>>): Promise<Tagged<T>> {
  const { data, response } = await call;
  return { value: data as T, etag: response.headers.get('ETag') ?? '' };
}

/** The header of an update, which fails with 412 if somebody else saved first. */
export function ifMatch(etag: string): { 'If-Match': string } {
  return { 'If-Match': etag };
}

/** The ETag of a list item, which carries its version instead. */
export function etagOf({ version }: { version: number }): string {
  return `"${version}"`;
}
