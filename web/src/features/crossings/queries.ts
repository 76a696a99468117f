import { api } from '~/api/client';
import { pagesQuery, rowsOf } from '~/api/pages';
import { tenantKey } from '~/api/queries';
import type { Crossing } from '~/api/types';

export type WhichCrossings = { rule: string } | { user: string };

export const crossingsQuery = (tenant: string, which: WhichCrossings) => {
  const filter = 'rule' in which ? { rule_id: which.rule } : { user_id: which.user };
  const list = pagesQuery(tenantKey(tenant, 'crossings', which), (cursor, signal) =>
    api.get('/api/v1/tenants/{tenant}/crossings', { tenant, ...filter, limit: 10, cursor, signal }),
  );
  // The Recorder writes each second, so a page can open before a crossing is there.
  return { ...list, select: rowsOf<Crossing>, refetchInterval: 5_000 };
};
