import { queryOptions } from '@tanstack/react-query';
import { api, body } from '~/api/client';
import { all } from '~/api/pages';
import { tenantKey } from '~/api/queries';
import type { MatrixRow, Rule, RuleChange } from '~/api/types';
import { rowId } from './draft';

/** The saved rows, and the server's name of that state. */
export interface Matrix {
  rows: MatrixRow[];
  etag: string;
  /** More rows are being read. */
  isPart?: boolean;
}

export const matrixQuery = (tenant: string) =>
  queryOptions({
    queryKey: tenantKey(tenant, 'matrix'),
    queryFn: async ({ signal, client, queryKey }): Promise<Matrix> => {
      const known = client.getQueryData<Matrix>(queryKey);
      const page = (cursor?: string) =>
        api.GET('/api/v1/tenants/{tenant}/matrix', {
          params: {
            path: { tenant },
            query: { limit: 500, cursor },
            header: known?.etag && !cursor ? { 'If-None-Match': known.etag } : undefined,
          },
          signal,
        });
      const first = page();
      const { data, response } = await first;
      if (known && response.status === 304) return known;
      if (data?.next_cursor && !known)
        client.setQueryData<Matrix>(queryKey, { rows: data.items, etag: '', isPart: true });
      const rows = await all((cursor) => body(cursor ? page(cursor) : first));
      return { rows, etag: response.headers.get('ETag') ?? '' };
    },
    structuralSharing: false, // comparing 50,000 rules takes longer than drawing those in sight
    // Somebody else may change limits. Their denials are as fresh.
    refetchInterval: 15_000,
  });

/** What a save leaves. If others have saved too, it keeps its former ETag, and so it is read again. */
export function withSaved(matrix: Matrix, changes: RuleChange[], etag: string): Matrix {
  const rows = new Map(matrix.rows.map((row) => [rowId(row), row]));
  for (const { before, after } of changes) {
    const { key_pattern, name, scope } = (after ?? before) as Rule;
    const id = rowId({ key_pattern, name });
    const others = (rows.get(id)?.rules ?? []).filter(({ rule_id }) => rule_id !== before?.rule_id);
    rows.set(id, { key_pattern, name, scope, rules: after ? [...others, after] : others });
  }
  return {
    rows: [...rows.values()].filter(({ rules }) => rules.length > 0).sort(byRow),
    etag: numberOf(etag) === numberOf(matrix.etag) + 1 ? etag : matrix.etag,
  };
}

/** The server's order of rows. */
function byRow(a: MatrixRow, b: MatrixRow): number {
  if (a.key_pattern !== b.key_pattern) return a.key_pattern < b.key_pattern ? -1 : 1;
  return a.name < b.name ? -1 : Number(a.name > b.name);
}

const numberOf = (etag: string) => Number(/\d+/.exec(etag)?.[0]);
