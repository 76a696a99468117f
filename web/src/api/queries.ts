import { hashKey, MutationCache, QueryCache, QueryClient, queryOptions } from '@tanstack/react-query';
import { api, tagged } from './client';
import { serverNow } from './clock';
import { all } from './pages';
import { AwayError, isKind, isStatus, limitExceeded, ProblemError } from './problem';
import type { Session } from './types';

export type Resource =
  | 'adapting'
  | 'alerts'
  | 'audit'
  | 'audit webhook'
  | 'crossings'
  | 'enforcement change'
  | 'erasures'
  | 'explain'
  | 'exports'
  | 'gateways'
  | 'invitations'
  | 'itself'
  | 'keys'
  | 'matrix'
  | 'members'
  | 'overrides'
  | 'plans'
  | 'recording'
  | 'replays'
  | 'capacity'
  | 'rules'
  | 'scheduled'
  | 'security log'
  | 'stats'
  | 'status'
  | 'usage'
  | 'users'
  | 'violations';

export const sessionKey = ['session'] as const;

/** Begins with the tenant, so that caches of tenants never mix. */
export const tenantKey = (tenant: string, resource: Resource, ...rest: unknown[]) => [
  'tenant',
  tenant,
  resource,
  ...rest,
];

/** Keeps the previous data while the last part of the key changes. The others are the same tenant and rule. */
export function keepSame(queryKey: readonly unknown[]) {
  const same = hashKey(queryKey.slice(0, -1));
  return <T>(before: T | undefined, query?: { queryKey: readonly unknown[] }): T | undefined =>
    query && hashKey(query.queryKey.slice(0, -1)) === same ? before : undefined;
}

export function newQueryClient(): QueryClient {
  // Any 401 ends the session.
  const onError = (error: unknown) => {
    if (isStatus(error, 401)) client.setQueryData(sessionKey, (now) => now && null);
  };
  const client = new QueryClient({
    queryCache: new QueryCache({ onError }),
    mutationCache: new MutationCache({ onError }),
    defaultOptions: {
      queries: {
        staleTime: 10_000,
        // Errors of the server are not retried; missing responses are, and denials that end with time.
        retry: (failures, error) =>
          (error instanceof AwayError && failures < 2) || (isKind(error, limitExceeded) && failures < 5),
        retryDelay: (_, error) => (error instanceof ProblemError ? (error.retryAfter ?? 1) * 1000 : 500),
        networkMode: 'always',
      },
      mutations: { networkMode: 'always' },
    },
  });
  return client;
}

export const sessionQuery = queryOptions({
  queryKey: sessionKey,
  queryFn: async ({ signal, client }) => {
    try {
      const session = await api.get('/api/v1/session', { signal });
      const before = client.getQueryData<Session | null>(sessionKey);
      if (before && before.account.account_id !== session.account.account_id) {
        // Another account signed in, in another tab.
        void client.resetQueries({ predicate: ({ queryKey }) => queryKey[0] !== sessionKey[0] });
      }
      return session;
    } catch (error) {
      if (isStatus(error, 401)) return null;
      throw error;
    }
  },
  staleTime: 60_000,
});

export const signInOptionsQuery = queryOptions({
  queryKey: ['sign-in'],
  queryFn: ({ signal }) => api.get('/api/v1/sign-in', { signal }),
  staleTime: 60_000,
});

export const identitiesKey = ['identities'] as const;

export const identitiesQuery = queryOptions({
  queryKey: identitiesKey,
  queryFn: async ({ signal }) => (await api.get('/api/v1/account/identities', { signal })).items,
});

const most = 500;

export const tenantQuery = (tenant: string) =>
  queryOptions({
    queryKey: tenantKey(tenant, 'itself'),
    queryFn: ({ signal }) => tagged(api.get('/api/v1/tenants/{tenant}', { tenant, signal })),
  });

export const capacityQuery = (tenant: string) =>
  queryOptions({
    queryKey: tenantKey(tenant, 'capacity'),
    queryFn: ({ signal }) => tagged(api.get('/api/v1/tenants/{tenant}/capacity', { tenant, signal })),
  });

export const plansQuery = (tenant: string) =>
  queryOptions({
    queryKey: tenantKey(tenant, 'plans'),
    queryFn: ({ signal }) =>
      all((cursor) => api.get('/api/v1/tenants/{tenant}/plans', { tenant, limit: most, cursor, signal })).then(
        (plans) => plans.sort((a, b) => a.position - b.position),
      ),
  });

const allRulesQuery = (tenant: string, key: string[], filter: { pattern?: string; action?: 'block'; active?: true }) =>
  queryOptions({
    queryKey: tenantKey(tenant, 'rules', ...key),
    queryFn: ({ signal }) =>
      all((cursor) => api.get('/api/v1/tenants/{tenant}/rules', { tenant, ...filter, limit: most, cursor, signal })),
  });

export const rulesQuery = (tenant: string) => allRulesQuery(tenant, [], {});

export const rulesOfPatternQuery = (tenant: string, pattern: string) =>
  allRulesQuery(tenant, ['pattern', pattern], { pattern });

export const blocksQuery = (tenant: string) => ({
  ...allRulesQuery(tenant, ['blocks'], { action: 'block', active: true }),
  refetchInterval: 15_000,
});

export const ruleQuery = (tenant: string, id: string) =>
  queryOptions({
    queryKey: tenantKey(tenant, 'rules', id),
    queryFn: ({ signal }) =>
      tagged(api.get('/api/v1/tenants/{tenant}/rules/{rule_id}', { tenant, rule_id: id, signal })),
  });

export const adaptingQuery = (tenant: string) =>
  queryOptions({
    queryKey: tenantKey(tenant, 'adapting'),
    queryFn: async ({ signal }) => (await api.get('/api/v1/tenants/{tenant}/adapting', { tenant, signal })).items,
    refetchInterval: 5_000,
  });

export interface Verdicts {
  denied: number;
  checks: number;
}

const hour = 3_600_000;

export const lastHourQuery = (tenant: string) =>
  queryOptions({
    queryKey: tenantKey(tenant, 'stats', 'last-hour'),
    queryFn: async ({ signal }) => {
      const from = new Date(serverNow() - hour).toISOString();
      const { items } = await api.get('/api/v1/tenants/{tenant}/stats/top', {
        tenant,
        by: 'rule',
        from,
        limit: 10_000,
        signal,
      });
      return new Map<string, Verdicts>(
        items.map(({ value, denied, checks }) => [value, { denied, checks: checks ?? denied }]),
      );
    },
    refetchInterval: 15_000,
  });

export const membersQuery = (tenant: string) =>
  queryOptions({
    queryKey: tenantKey(tenant, 'members'),
    queryFn: ({ signal }) =>
      all((cursor) => api.get('/api/v1/tenants/{tenant}/members', { tenant, limit: most, cursor, signal })),
  });

interface Looks {
  data: { finished_at: string | null } | undefined;
  error: unknown;
  dataUpdateCount: number;
}

/** In milliseconds: every second for a minute, then more rarely. */
export function nextLook({ data, error, dataUpdateCount }: Looks): number | false {
  if (data?.finished_at || isStatus(error, 403) || isStatus(error, 404)) return false;
  return error || dataUpdateCount >= 60 ? 15_000 : 1_000;
}
