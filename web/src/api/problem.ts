export interface ProblemDocument {
  type: string;
  title: string;
  status: number;
  detail?: string;
  request_id?: string;
  errors?: { pointer: string; detail: string }[];
}

const prefix = 'urn:sluice:problem:';

/** Of draft-ietf-httpapi-ratelimit-headers. */
export const limitExceeded = 'https://iana.org/assignments/http-problem-types#quota-exceeded';

export class ProblemError extends Error {
  constructor(
    readonly document: ProblemDocument,
    /** For a 412: the current ETag of the resource. */
    readonly etag: string | null = null,
    /** For a 429 or 503: seconds until a retry makes sense. */
    readonly retryAfter: number | null = null,
  ) {
    super(document.detail || document.title);
    this.name = 'ProblemError';
  }

  get kind(): string {
    return this.document.type.replace(prefix, '');
  }

  get status(): number {
    return this.document.status;
  }

  field(pointer: string): string | undefined {
    return this.document.errors?.find((error) => error.pointer === pointer)?.detail;
  }
}

/** No answer, or one from a proxy that has no server behind it. */
export class AwayError extends Error {
  constructor(cause?: unknown) {
    super('The server is not responding.', { cause });
    this.name = 'AwayError';
  }
}

export function isKind(error: unknown, kind: string): error is ProblemError {
  return error instanceof ProblemError && error.kind === kind;
}

export function isStatus(error: unknown, status: number): error is ProblemError {
  return error instanceof ProblemError && error.status === status;
}

export function sentence(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

export async function problemOf(response: Response): Promise<ProblemError | AwayError> {
  const type = response.headers.get('Content-Type') ?? '';
  if (!type.startsWith('application/problem+json')) {
    if ([502, 503, 504].includes(response.status)) return new AwayError();
    return new ProblemError({
      type: `${prefix}unreadable`,
      title: 'Unexpected response from the server',
      status: response.status,
    });
  }
  const retry = Number(response.headers.get('Retry-After'));
  return new ProblemError(
    (await response.json()) as ProblemDocument,
    response.headers.get('ETag'),
    Number.isFinite(retry) && retry > 0 ? retry : null,
  );
}
