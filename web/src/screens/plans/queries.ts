import { queryOptions } from '@tanstack/react-query';
import { api, headerOf } from '~/api/client';
import { all } from '~/api/pages';
import { tenantKey } from '~/api/queries';
import type { MatrixRow, Rule, RuleChange } from '~/api/types';
import { rowId } from './draft';

interface Matrix {
  rows: MatrixRow[];
  etag: string;
  isPart?: boolean;
}

export const matrixQuery = (tenant: string) =>
  queryOptions({
    queryKey: tenantKey(tenant, 'matrix'),
    queryFn: async ({ signal, client, queryKey }): Promise<Matrix> => {
      const known = client.getQueryData<Matrix>(queryKey);
      const page = (cursor?: string) =>
        api.get('/api/v1/tenants/{tenant}/matrix', {
          tenant,
          limit: 500,
          cursor,
          headers: known?.etag && !cursor ? { 'If-None-Match': known.etag } : undefined,
          signal,
        });
      const first = page();
      const data = await first;
      if (known && (data as unknown) instanceof Response) return known; // 304
      if (data.next_cursor && !known) {
        const part = { rows: data.items, etag: '', isPart: true };
        client.setQueryData<Matrix>(queryKey, part, { updatedAt: 1 }); // stale, should nobody wait for the rest
      }
      const rows = await all((cursor) => (cursor ? page(cursor) : first));
      return { rows, etag: headerOf(data, 'ETag') ?? '' };
    },
    structuralSharing: false, // comparing 50,000 rules takes longer than drawing those in sight
    // As often as denials.
    refetchInterval: 15_000,
  });

/** The matrix after a save. Without an ETag the next poll reads all of it, as it must if others may have saved too. */
export function withSaved(matrix: Matrix, changes: RuleChange[], etag: string): Matrix {
  const rows = new Map(matrix.rows.map((row) => [rowId(row), row]));
  for (const { before, after } of changes) {
    const { key_pattern, name, scope } = (after ?? before) as Rule;
    const id = rowId({ key_pattern, name });
    const others = (rows.get(id)?.rules ?? []).filter(({ rule_id }) => rule_id !== before?.rule_id);
    rows.set(id, { key_pattern, name, scope, rules: after ? [...others, after].sort(byPlan) : others });
  }
  return {
    ...matrix,
    rows: [...rows.values()].filter(({ rules }) => rules.length > 0).sort(byRow),
    etag: numberOf(etag) === numberOf(matrix.etag) + 1 ? etag : '',
  };
}

function byRow(a: MatrixRow, b: MatrixRow): number {
  if (a.key_pattern !== b.key_pattern) return a.key_pattern < b.key_pattern ? -1 : 1;
  return a.name < b.name ? -1 : Number(a.name > b.name);
}

/** The server's order of a row: the rule for all plans, then by plan. */
function byPlan(a: Rule, b: Rule): number {
  if (a.plan === null || b.plan === null) return Number(a.plan !== null) - Number(b.plan !== null);
  return a.plan < b.plan ? -1 : Number(a.plan > b.plan);
}

const numberOf = (etag: string) => Number(/\d+/.exec(etag)?.[0]);
