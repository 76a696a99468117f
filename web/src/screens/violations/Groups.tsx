import { useQuery } from '@tanstack/react-query';
import { presentQuery, presentRate, topQuery } from '~/api/traffic';
import type { Present, Top, TopBy, TopItem } from '~/api/types';
import { actsColumn, countColumn, timeColumn } from '~/components/columns';
import { type Column, DataTable } from '~/components/DataTable';
import { IconViolations } from '~/components/icons';
import { Num } from '~/components/Num';
import { Card } from '~/components/Page';
import { RuleName } from '~/components/RuleLink';
import { EmptyState, ErrorState, LoadingLines } from '~/components/states';
import { exactTime, percent } from '~/domain/format';
import { type Group, groupFilter, isLowerBound } from '~/domain/group';
import type { Span } from '~/domain/range';
import { Blocked, useBlock } from '~/features/temporary/Blocked';
import { GroupMenu } from '~/features/temporary/GroupMenu';
import { RuleMenu } from '~/features/temporary/RuleMenu';
import type { ViolationsSearch } from '~/search';
import { useRole } from '~/session';
import { useWhole } from './OverTime';
import styles from './Violations.module.css';

const most = 100;

export const groupTitles: Record<TopBy, string> = {
  user: 'Users',
  ip: 'Addresses',
  network: 'Networks',
  endpoint: 'Endpoints',
  rule: 'Rules',
};

const singular: Record<TopBy, string> = {
  user: 'User',
  ip: 'Address',
  network: 'Network',
  endpoint: 'Endpoint',
  rule: 'Rule',
};

interface Props {
  tenant: string;
  span: Span;
  by: TopBy;
  search: ViolationsSearch;
}

export function Groups({ tenant, span, by, search }: Props) {
  // A user whom only a shadow rule would deny was not denied. A rule says itself that it is a shadow.
  const mode = search.mode ?? (by === 'rule' ? undefined : 'enforce');
  const filter = { mode, rule_id: by === 'rule' ? undefined : search.rule };
  const top = useQuery(topQuery(tenant, span, by, most, filter));
  const total = useWhole(tenant, span, { rule: filter.rule_id, mode });
  const { edit } = useRole();
  const now = useQuery({ ...presentQuery(tenant, by), enabled: mode !== 'shadow' }).data;
  if (!top.data) {
    return (
      <Card flush>
        {top.isError ? <ErrorState error={top.error} onRetry={() => top.refetch()} /> : <LoadingLines lines={10} />}
      </Card>
    );
  }
  const { items, unattributed } = top.data;
  const rows = items.filter(({ denied }) => denied > 0);
  // A check that two rules denied is a denial of each.
  const whole = Math.max(total ?? 0, unattributed + rows.reduce((sum, { denied }) => sum + denied, 0));
  return (
    <>
      <Card flush>
        {rows.length === 0 ? (
          <EmptyState icon={IconViolations} title="No denials in this time range" />
        ) : (
          <div className={top.isPlaceholderData ? styles.old : undefined} aria-busy={top.isPlaceholderData}>
            <DataTable
              label={`${groupTitles[by]} by denials`}
              columns={columnsOf(tenant, by, mode, whole, edit, now)}
              rows={rows}
              rowKey={({ value }) => value}
              to={({ value }) => ({
                to: '/t/$tenant/violations',
                params: { tenant },
                search: { ...groupFilter({ by, value }), mode, range: search.range },
              })}
            />
          </div>
        )}
      </Card>
      <footer className={styles.footer}>{coverage(top.data)}</footer>
    </>
  );
}

function columnsOf(
  tenant: string,
  by: TopBy,
  mode: ViolationsSearch['mode'],
  whole: number,
  edit: boolean,
  now: Present | undefined,
): Column<TopItem>[] {
  const nowColumn: Column<TopItem> = {
    key: 'now',
    header: 'Now',
    width: 264,
    under: true,
    render: ({ value }) => {
      const rate = now && presentRate(now, value);
      return by === 'rule' ? <Rate rate={rate} /> : <Now tenant={tenant} group={{ by, value }} rate={rate} />;
    },
  };
  const columns: Column<TopItem>[] = [
    { key: 'value', header: singular[by], render: (item) => <Value by={by} item={item} /> },
    {
      key: 'share',
      header: 'Share',
      width: 168,
      wide: true,
      render: ({ denied }) => (
        <span className={styles.share} style={{ '--share': denied / whole } as React.CSSProperties}>
          {percent(denied / whole)}
        </span>
      ),
    },
    mode === 'shadow'
      ? countColumn('denied', 'Would be denied', 144, ({ denied }) => denied)
      : countColumn('denied', 'Denied', 96, ({ denied }) => denied),
    ...(mode === 'shadow' ? [] : [nowColumn]),
    timeColumn('last', 'Last', ({ last_at }) => last_at, { width: 112 }),
  ];
  if (!edit) return columns;
  return [
    ...columns,
    actsColumn(60, ({ value, denied, rule }) =>
      by !== 'rule' ? (
        <GroupMenu tenant={tenant} group={{ by, value }} denied={denied} />
      ) : (
        rule && !rule.removed && <RuleMenu tenant={tenant} rule={rule} denied={denied} />
      ),
    ),
  ];
}

function Now({ tenant, group, rate }: { tenant: string; group: Group; rate: string | undefined }) {
  const block = useBlock(tenant, group);
  if (!block) return <Rate rate={rate} />;
  return (
    <>
      {rate && <Rate rate={rate} />} <Blocked tenant={tenant} group={group} />
    </>
  );
}

function Rate({ rate }: { rate: string | undefined }) {
  return <span className="numeric">{rate ? `${rate} denied` : <span className="soft">none denied</span>}</span>;
}

function Value({ by, item: { value, rule } }: { by: TopBy; item: TopItem }) {
  if (by !== 'rule') return <>{value}</>;
  return <RuleName id={value} rule={rule ?? undefined} />;
}

function coverage({ by, unattributed, looked_back_to }: Top): React.ReactNode {
  const exact = !isLowerBound({ unattributed, looked_back_to });
  return (
    <span>
      {by === 'network' && 'IPv4 by /24, IPv6 by /48. '}
      {exact && 'Exact counts.'}
      {unattributed > 0 && (
        <>
          <Num value={unattributed} unit="more denials" /> are of {groupTitles[by].toLowerCase()} that were too many to
          count each.
        </>
      )}
      {looked_back_to && ` From the latest 100,000 counts, back to ${exactTime(Date.parse(looked_back_to))}.`}
    </span>
  );
}
