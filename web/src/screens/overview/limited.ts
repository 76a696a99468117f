import { queryOptions } from '@tanstack/react-query';
import { api } from '~/api/client';
import { serverNow } from '~/api/clock';
import { keepSame, tenantKey } from '~/api/queries';
import { presentQuery } from '~/api/traffic';
import type { Busiest, Present, RuleName, Top, Violation } from '~/api/types';
import { type Group, groupFilter, isLowerBound } from '~/domain/group';
import { isoMoments, type Span } from '~/domain/range';

const shown = 8;
/** The least number of rows for the most denied, if others make many checks. */
const shownDenied = 5;
const most = 100;
const sample = 10;

/** Somebody whose checks are denied or many: a user, or the addresses of a network. */
export interface Limited {
  group: Group;
  /** Checks a minute; undefined for few ones. */
  checks?: number;
  denied: number;
  /** A minute. */
  now: number;
  trend: 'up' | 'down' | 'steady';
  /** The rule that denies most now or, if none does, that of most of the latest denials. */
  rule: (Pick<RuleName, 'rule_id' | 'key_pattern' | 'meter'> & { name?: string }) | undefined;
  endpoint: string | undefined;
  users: (string | null)[];
}

type Kinds<T> = Record<'user' | 'network', T>;

export interface Answer {
  rows: Limited[];
  now: number;
  isPart: boolean;
  known: Row[];
}

export const limitedQuery = (tenant: string, span: Span, meter?: string) => {
  const queryKey = tenantKey(tenant, 'stats', 'limited', meter ?? null, span.text);
  return queryOptions({
    queryKey,
    queryFn: async ({ client, signal }): Promise<Answer> => {
      const path = { tenant };
      const top = (by: keyof Kinds<Top>) => {
        const query = { ...isoMoments(span, serverNow()), by, meter, limit: most, mode: 'enforce' as const };
        return api.get('/api/v1/tenants/{tenant}/stats/top', { ...path, ...query, signal });
      };
      const [users, networks, user, network] = await Promise.all([
        top('user'),
        top('network'),
        client.fetchQuery(presentQuery(tenant, 'user', meter)),
        client.fetchQuery(presentQuery(tenant, 'network', meter)),
      ]);
      const found = [...rowsOf('user', users, user, span), ...rowsOf('network', networks, network, span)];
      const rows = await Promise.all(
        leaders(found).map(async (row) => {
          const times = isoMoments(span, serverNow());
          const query = { ...groupFilter(row.group), ...times, meter, mode: 'enforce' as const };
          const { user, ...filter } = query as typeof query & { user?: string };
          const list = await api.get('/api/v1/tenants/{tenant}/violations', {
            ...path,
            ...filter,
            user_id: user,
            limit: sample,
            signal,
          });
          return { ...row, ...causeOf(list.items) };
        }),
      );
      const isPart = isLowerBound(users) || isLowerBound(networks);
      return atPresent({ rows: chosen(rows), now: 0, isPart, known: found }, { user, network });
    },
    refetchInterval: span.moves ? 15_000 : (false as const),
    placeholderData: keepSame(queryKey),
  });
};

type Row = Pick<Limited, 'group' | 'denied' | 'now'>;

/** A range that ends now has those denied at present too, though many others were denied more. */
function rowsOf(by: keyof Kinds<Top>, top: Top, present: Present, span: Span): Row[] {
  const rates = new Map(present.items.map(({ value, per_minute }) => [value, per_minute]));
  const rows = top.items.map(({ value, denied }) => ({ group: { by, value }, denied, now: rates.get(value) ?? 0 }));
  if (!span.moves) return rows;
  const listed = new Set(top.items.map(({ value }) => value));
  const others = present.items.filter(({ value }) => !listed.has(value));
  return rows.concat(
    others.map(({ value, per_minute, per_minute_before }) => ({
      group: { by, value },
      denied: Math.round(per_minute / 6 + per_minute_before * 5),
      now: per_minute,
    })),
  );
}

export function atPresent(answer: Answer, present: Partial<Kinds<Present>>): Answer {
  const rows = answer.rows.map((row) => {
    const found = present[row.group.by as keyof Kinds<Present>];
    if (!found) return row;
    const item = found.items.find(({ value }) => value === row.group.value);
    const now = item?.per_minute ?? 0;
    return { ...row, now, trend: trendOf(now, item?.per_minute_before ?? 0), rule: item?.rule ?? row.rule };
  });
  const now = Math.max(...[present.user, present.network].map((found) => found?.per_minute ?? 0));
  return {
    ...answer,
    rows: rows.toSorted((a, b) => b.now - a.now || b.denied - a.denied),
    now: present.user || present.network ? now : answer.now,
  };
}

/** The most denied, with those beside them who make most checks. */
export function topCallers({ rows, known }: Answer, busiest: Partial<Kinds<Busiest>>): Limited[] {
  const callers = (['user', 'network'] as const).flatMap((by) =>
    (busiest[by]?.items ?? []).map(({ value, per_minute }) => ({ group: { by, value }, checks: per_minute })),
  );
  const keyOf = ({ by, value }: Group) => `${by} ${value}`;
  const checks = new Map(callers.map((caller) => [keyOf(caller.group), caller.checks]));
  const denied = new Map(known.map((row) => [keyOf(row.group), row]));
  const listed = new Set(rows.map(({ group }) => keyOf(group)));
  const others = callers.filter(({ group }) => !listed.has(keyOf(group))).toSorted((a, b) => b.checks - a.checks);
  return [
    ...rows
      .slice(0, Math.max(shownDenied, shown - others.length))
      .map((row) => ({ ...row, checks: checks.get(keyOf(row.group)) })),
    ...others.map((other) => ({ ...unlimited, ...denied.get(keyOf(other.group)), ...other })),
  ].slice(0, shown);
}

const unlimited = { denied: 0, now: 0, trend: 'steady' as const, rule: undefined, endpoint: undefined, users: [] };

/** A change counts if it is a quarter, and more than chance. */
export function trendOf(now: number, before: number): Limited['trend'] {
  if (Math.abs(now - before) < Math.max(5, before / 4)) return 'steady';
  return now > before ? 'up' : 'down';
}

function causeOf(denials: Violation[]): Pick<Limited, 'rule' | 'endpoint' | 'users' | 'trend'> {
  const id = commonest(denials.map(({ rule_id }) => rule_id));
  return {
    rule: denials.find(({ rule_id }) => rule_id === id),
    endpoint: commonest(denials.map(({ endpoint }) => endpoint)) ?? undefined,
    users: denials.map(({ user_id }) => user_id),
    trend: 'steady',
  };
}

function commonest<T>(values: T[]): T | undefined {
  const counts = new Map<T, number>();
  for (const value of values) counts.set(value, (counts.get(value) ?? 0) + 1);
  return [...counts].toSorted(([, a], [, b]) => b - a)[0]?.[0];
}

/** The rows to show. A network whose denials are those of listed users is left out. */
function chosen(rows: Limited[]): Limited[] {
  const listed = new Set(rows.filter(({ group }) => group.by === 'user').map(({ group }) => group.value));
  const isOfUsers = ({ users }: Limited) =>
    users.filter((user) => user !== null && listed.has(user)).length > users.length / 2;
  return rows.filter((row) => row.group.by === 'user' || !isOfUsers(row));
}

function leaders(rows: Row[]): Row[] {
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

export interface Flood {
  source: Limited;
  share: number;
  checks: number;
}

/** A new source of at least half of all checks, and of three times as many as in the hour before. */
export function floods({ known }: Answer, busiest: Partial<Kinds<Busiest>>): Flood | undefined {
  for (const by of ['user', 'network'] as const) {
    const { items, per_minute: all, per_minute_before: allBefore } = busiest[by] ?? nobody;
    const first = items.find(
      ({ per_minute: checks, per_minute_before: before }) =>
        checks >= 600 && checks >= all / 2 && checks >= 3 * before && before < allBefore / 2,
    );
    if (!first) continue;
    const { value, per_minute: checks } = first;
    const denied = known.find(({ group }) => group.by === by && group.value === value);
    return { source: { ...unlimited, ...denied, group: { by, value } }, share: Math.min(1, checks / all), checks };
  }
  return undefined;
}

const nobody = { items: [], per_minute: 0, per_minute_before: 0 };
