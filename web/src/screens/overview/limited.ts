import { queryOptions } from '@tanstack/react-query';
import { api, body } from '~/api/client';
import { serverNow } from '~/api/clock';
import { keepSame, tenantKey } from '~/api/queries';
import type { Violation } from '~/api/types';
import { type Group, groupFilter } from '~/domain/group';
import { isoMoments, type Span } from '~/domain/range';

const minute = 60_000;
const shown = 8;
/** The latest denials that show the rule and the endpoint of somebody's limit. */
const sample = 10;

/** Somebody whose checks are denied: a user, or the addresses of a network. */
export interface Limited {
  group: Group;
  denied: number;
  now: number;
  /** How that compares with the mean of the five minutes before. */
  trend: 'up' | 'down' | 'steady';
  /** The rule and the endpoint of most of the latest denials. */
  rule: Pick<Violation, 'rule_id' | 'key_pattern'> | undefined;
  endpoint: string | undefined;
  users: (string | null)[];
}

export interface Answer {
  rows: Limited[];
  /** Denials of all in the last full minute. */
  now: number;
}

/** The most denied: users, and networks without the denials of listed users. */
export const limitedQuery = (tenant: string, span: Span) => {
  const queryKey = tenantKey(tenant, 'stats', 'limited', span.text);
  return queryOptions({
    queryKey,
    queryFn: async ({ signal }): Promise<Answer> => {
      const path = { tenant };
      const end = Math.floor(serverNow() / minute) * minute;
      const top = async (by: Group['by'], moments: { from: string; until: string }, limit: number) => {
        const query = { ...moments, by, limit, mode: 'enforce' as const };
        const { items } = await body(
          api.GET('/api/v1/tenants/{tenant}/stats/top', { params: { path, query }, signal }),
        );
        return items;
      };
      const last = iso(end - minute, end);
      const before = iso(end - 6 * minute, end - minute);
      const kinds = (['user', 'network'] as const).map(async (by) => {
        const [items, now, then] = await Promise.all([
          top(by, isoMoments(span, serverNow()), shown),
          top(by, last, 100),
          top(by, before, 100),
        ]);
        return items.map(({ value, denied }) => {
          const rate = now.find((one) => one.value === value)?.denied ?? 0;
          const mean = (then.find((one) => one.value === value)?.denied ?? 0) / 5;
          return { group: { by, value }, denied, now: rate, trend: trendOf(rate, mean) };
        });
      });
      const [found, whole] = await Promise.all([
        Promise.all(kinds),
        body(api.GET('/api/v1/tenants/{tenant}/stats/summary', { params: { path, query: last }, signal })),
      ]);
      const rows = await Promise.all(
        leaders(found.flat()).map(async (row) => {
          const query = { ...groupFilter(row.group), ...isoMoments(span, serverNow()), mode: 'enforce' as const };
          const { user, ...filter } = query as typeof query & { user?: string };
          const list = await body(
            api.GET('/api/v1/tenants/{tenant}/violations', {
              params: { path, query: { ...filter, user_id: user, limit: sample } },
              signal,
            }),
          );
          return { ...row, ...causeOf(list.items) };
        }),
      );
      return { rows: chosen(rows), now: whole.total.denied };
    },
    refetchInterval: span.moves ? 15_000 : (false as const),
    placeholderData: keepSame(queryKey),
  });
};

function iso(from: number, until: number) {
  return { from: new Date(from).toISOString(), until: new Date(until).toISOString() };
}

/** A change counts if it is a quarter, and more than chance. */
export function trendOf(now: number, before: number): Limited['trend'] {
  if (Math.abs(now - before) < Math.max(5, before / 4)) return 'steady';
  return now > before ? 'up' : 'down';
}

/** The rule and the endpoint that most of the denials have, and their users. */
export function causeOf(denials: Violation[]): Pick<Limited, 'rule' | 'endpoint' | 'users'> {
  const id = commonest(denials.map(({ rule_id }) => rule_id));
  return {
    rule: denials.find(({ rule_id }) => rule_id === id),
    endpoint: commonest(denials.map(({ endpoint }) => endpoint)) ?? undefined,
    users: denials.map(({ user_id }) => user_id),
  };
}

function commonest<T>(values: T[]): T | undefined {
  const counts = new Map<T, number>();
  for (const value of values) counts.set(value, (counts.get(value) ?? 0) + 1);
  return [...counts].toSorted(([, a], [, b]) => b - a)[0]?.[0];
}

/** The rows to show. A network whose denials are those of listed users is left out. */
export function chosen(rows: Limited[]): Limited[] {
  const listed = new Set(rows.filter(({ group }) => group.by === 'user').map(({ group }) => group.value));
  const isOfUsers = ({ users }: Limited) =>
    users.filter((user) => user !== null && listed.has(user)).length > users.length / 2;
  return rows.filter((row) => row.group.by === 'user' || !isOfUsers(row));
}

function leaders<Row extends Pick<Limited, 'now' | 'denied'>>(rows: Row[]): Row[] {
  return rows
    .filter(({ denied }) => denied > 0)
    .toSorted((a, b) => b.now - a.now || b.denied - a.denied)
    .slice(0, shown);
}

/** The one source of most denials, if it is many times what a busy caller meets. */
export function standsOut({ rows, now }: Answer): Limited | undefined {
  const [first] = rows;
  return first && first.now >= 100 && first.now >= now / 2 ? first : undefined;
}
