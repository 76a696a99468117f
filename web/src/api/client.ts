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
  fetch: (request) => globalThis.fetch(request),
});

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
