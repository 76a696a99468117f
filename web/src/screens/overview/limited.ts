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
}

type Kinds<T> = Record<'user' | 'network', T>;

export interface Answer {
  rows: Limited[];
  now: number;
  isPart: boolean;
  known: Row[];
  /** Keys of those who were denied and are not in rows: others make the same denials. */
  left: ReadonlySet<string>;
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
      const sampled = (rows: Row[], limit: number) =>
        Promise.all(
          leaders(rows).map(async (row) => {
            const times = isoMoments(span, serverNow());
            const query = { ...groupFilter(row.group), ...times, meter, mode: 'enforce' as const };
            const { user, ...filter } = query as typeof query & { user?: string };
            const list = await api.get('/api/v1/tenants/{tenant}/violations', {
              ...path,
              ...filter,
              user_id: user,
              limit,
              signal,
            });
            return { ...row, ...causeOf(list.items), denials: list.items };
          }),
        );
      const causes = (await sampled(found.filter(isNetwork), most)).filter(({ denials }) => !isOfFew(denials));
      const members = new Set(causes.flatMap(({ denials }) => denials.map(({ user_id }) => user_id)));
      const people = found.filter((row) => !isNetwork(row) && !members.has(row.group.value));
      const alone = (await sampled(people, sample)).filter(
        ({ denials }) => !causes.some((one) => isFrom(one, denials)),
      );
      const rows = leaders([...causes, ...alone]);
      const listed = new Set(rows.map(({ group }) => keyOf(group)));
      const left = found.map(({ group }) => keyOf(group)).filter((key) => !listed.has(key));
      const isPart = isLowerBound(users) || isLowerBound(networks);
      return atPresent({ rows, now: 0, isPart, known: found, left: new Set(left) }, { user, network });
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
export function topCallers({ rows, known, left }: Answer, busiest: Partial<Kinds<Busiest>>): Limited[] {
  const callers = (['user', 'network'] as const).flatMap((by) =>
    (busiest[by]?.items ?? []).map(({ value, per_minute }) => ({ group: { by, value }, checks: per_minute })),
  );
  const checks = new Map(callers.map((caller) => [keyOf(caller.group), caller.checks]));
  const denied = new Map(known.map((row) => [keyOf(row.group), row]));
  const listed = new Set(rows.map(({ group }) => keyOf(group)));
  const others = callers
    .filter(({ group }) => !listed.has(keyOf(group)) && !left.has(keyOf(group)))
    .toSorted((a, b) => b.checks - a.checks);
  return [
    ...rows
      .slice(0, Math.max(shownDenied, shown - others.length))
      .map((row) => ({ ...row, checks: checks.get(keyOf(row.group)) })),
    ...others.map((other) => ({ ...unlimited, ...denied.get(keyOf(other.group)), ...other })),
  ].slice(0, shown);
}

const unlimited = { denied: 0, now: 0, trend: 'steady' as const, rule: undefined, endpoint: undefined };

/** A change counts if it is a quarter, and more than chance. */
export function trendOf(now: number, before: number): Limited['trend'] {
  if (Math.abs(now - before) < Math.max(5, before / 4)) return 'steady';
  return now > before ? 'up' : 'down';
}

function causeOf(denials: Violation[]): Pick<Limited, 'rule' | 'endpoint' | 'trend'> {
  const id = commonest(denials.map(({ rule_id }) => rule_id));
  return {
    rule: denials.find(({ rule_id }) => rule_id === id),
    endpoint: commonest(denials.map(({ endpoint }) => endpoint)) ?? undefined,
    trend: 'steady',
  };
}

function commonest<T>(values: T[]): T | undefined {
  const counts = new Map<T, number>();
  for (const value of values) counts.set(value, (counts.get(value) ?? 0) + 1);
  return [...counts].toSorted(([, a], [, b]) => b - a)[0]?.[0];
}

const keyOf = ({ by, value }: Group) => `${by} ${value}`;

const isNetwork = ({ group }: Row) => group.by === 'network';

/** Whether most denials are of users who can be listed themselves. Else their network is the cause. */
function isOfFew(denials: Violation[]): boolean {
  const counts = new Map<string, number>();
  let all = 0;
  for (const { user_id, count } of denials) {
    all += count;
    if (user_id !== null) counts.set(user_id, (counts.get(user_id) ?? 0) + count);
  }
  const largest = [...counts.values()].toSorted((a, b) => b - a).slice(0, shown - 1);
  return largest.reduce((sum, count) => sum + count, 0) > all / 2;
}

function isFrom({ group }: Row, denials: Violation[]): boolean {
  const inside = denials.filter(({ ip_address }) => ip_address !== null && siteOf(ip_address) === siteOf(group.value));
  return inside.length > denials.length / 2;
}

/** The /24 of an IPv4 address, the /48 of an IPv6 address, in their short form. */
function siteOf(address: string): string {
  const [head = ''] = address.split('::');
  const parts = head.split(/[.:]/).slice(0, 3);
  return [...parts, '0', '0'].slice(0, 3).join();
}

function leaders<R extends Row>(rows: R[]): R[] {
  return rows
    .filter(({ denied }) => denied > 0)
    .toSorted((a, b) => b.now - a.now || b.denied - a.denied)
    .slice(0, shown);
}

/** Fewer a minute are no attack. */
const least = 600;

/** The one source of most denials, if it is many times what a busy caller meets, and a quarter of all usual checks. */
export function standsOut({ rows, now }: Answer, busiest: Partial<Kinds<Busiest>>): Limited | undefined {
  const [first] = rows;
  const usual = (busiest.network ?? nobody).per_minute_before;
  return first && first.now >= Math.max(least, now / 2, usual / 4) ? first : undefined;
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
        checks >= least && checks >= all / 2 && checks >= 3 * before && before < allBefore / 2,
    );
    if (!first) continue;
    const { value, per_minute: checks } = first;
    const denied = known.find(({ group }) => group.by === by && group.value === value);
    return { source: { ...unlimited, ...denied, group: { by, value } }, share: Math.min(1, checks / all), checks };
  }
  return undefined;
}

const nobody = { items: [], per_minute: 0, per_minute_before: 0 };
