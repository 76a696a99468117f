import type { AuthorizeMapping, SampleRequest } from '~/api/types';

export interface SampleDraft {
  method: string;
  url: string;
  headers: string;
  claims: string;
}

export const firstSample: SampleDraft = {
  method: 'GET',
  url: '/orders/17?limit=5',
  headers: 'X-Forwarded-For: 203.0.113.9',
  claims: '{"sub": "42"}',
};

export function sampleOf(
  { method, url, headers, claims }: SampleDraft,
  mapping: AuthorizeMapping | undefined,
): { sample?: SampleRequest; errors: Partial<Record<keyof SampleDraft, string>> } {
  const errors: Partial<Record<keyof SampleDraft, string>> = {};
  const lines = headers.split('\n').filter((line) => line.trim());
  const without = lines.find((line) => line.indexOf(':') < 1);
  if (without) errors.headers = `must be “Name: value” on each line, and “${without.trim()}” is not`;
  const sample: SampleRequest = {
    method: method.trim(),
    // As proxies pass it on: without the origin and the fragment.
    uri:
      url
        .trim()
        .replace(/^https?:\/\/[^/?#]*/i, '')
        .replace(/#.*$/, '') || '/',
    headers: lines.map((line) => {
      const colon = line.indexOf(':');
      return { name: line.slice(0, colon).trim(), value: line.slice(colon + 1).trim() };
    }),
    ...(mapping && { mapping }),
  };
  if (mapping?.jwt && claims.trim()) {
    try {
      const read: unknown = JSON.parse(claims);
      if (typeof read !== 'object' || read === null || Array.isArray(read)) throw new Error();
      sample.claims = read as Record<string, never>;
    } catch {
      errors.claims = 'must be a JSON object, such as {"sub": "42"}';
    }
  }
  return Object.keys(errors).length > 0 ? { errors } : { sample, errors };
}

export function headersOf({ user, plan, cost, costs, address, attributes }: AuthorizeMapping): string[] {
  const sources = [user, plan, cost, ...Object.values(costs ?? {}), ...Object.values(attributes ?? {})];
  const names = [address?.header || 'X-Forwarded-For', ...sources.map((source) => source?.header)];
  return [...new Set(names.filter((name): name is string => !!name))];
}
