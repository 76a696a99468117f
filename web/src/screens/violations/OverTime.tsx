import { useQuery } from '@tanstack/react-query';
import { useMemo } from 'react';
import { serverNow } from '~/api/clock';
import { rulesQuery } from '~/api/queries';
import { seriesQuery, violationSeriesQuery } from '~/api/traffic';
import { filterOf } from '~/api/violations';
import { Chart } from '~/charts/Chart';
import type { Series } from '~/charts/chart';
import { LoadingLines } from '~/components/states';
import { exactTime, plural } from '~/domain/format';
import { type Span, wholeSteps } from '~/domain/range';
import type { ViolationsSearch } from '~/search';
import styles from './Violations.module.css';

interface Props {
  tenant: string;
  span: Span;
  search: ViolationsSearch;
  onBrush: (from: number, until: number) => void;
}

/** Whether exact counts have the same checks as the rows: all, those of one rule, or all that were denied. */
function isExact({ user, ip, endpoint, scope, plan, rule, mode }: ViolationsSearch): boolean {
  const others = user ?? ip ?? endpoint ?? scope ?? plan;
  return others === undefined && (mode === undefined || (mode === 'enforce' && rule === undefined));
}

export function useWhole(tenant: string, span: Span, search: ViolationsSearch): number | undefined {
  const exact = isExact(search);
  const counts = useQuery({ ...seriesQuery(tenant, span, { rule_id: search.rule }), enabled: exact });
  const records = useQuery({ ...violationSeriesQuery(tenant, span, filterOf(search)), enabled: !exact });
  return exact ? counts.data?.total.denied : records.data?.total;
}

/**
 * Denied checks over time, with the filters of the rows. The server counts decisions for all denials and those of one
 * rule, denials for one other filter, and violation records, which can miss some, for several filters.
 */
export function OverTime({ tenant, span, search, onBrush }: Props) {
  const exact = isExact(search);
  const filter = filterOf(search);
  // The rows are also those of shadow rules, which the counts of all checks leave out.
  const both = search.mode === undefined && !(exact && search.rule);
  const counts = useQuery({ ...seriesQuery(tenant, span, { rule_id: search.rule }), enabled: exact });
  const denials = both ? { ...filter, mode: 'enforce' as const } : filter;
  const records = useQuery({ ...violationSeriesQuery(tenant, span, denials), enabled: !exact });
  const shadows = useQuery({ ...violationSeriesQuery(tenant, span, { ...filter, mode: 'shadow' }), enabled: both });
  const { data: rules } = useQuery(rulesQuery(tenant));
  const { mode } = (exact ? rules?.find(({ rule_id }) => rule_id === search.rule) : search) ?? {};
  const isShadow = mode === 'shadow';
  const would = both && shadows.data && shadows.data.total > 0 ? shadows.data.points : undefined;
  const { x, series } = useMemo(() => {
    const points = exact
      ? counts.data?.points.map(({ at, denied }) => ({ at, count: denied }))
      : records.data?.points.map(({ at, checks }) => ({ at, count: checks }));
    const denied: Series = {
      label: isShadow ? 'would deny' : 'denied',
      tone: isShadow ? 'shadow' : 'denied',
      values: points?.map(({ count }) => count) ?? [],
      bars: true,
    };
    const x = points?.map(({ at }) => Date.parse(at) / 1000) ?? [];
    if (!would) return { x, series: [denied] };
    const found = new Map(would.map(({ at, checks }) => [Date.parse(at) / 1000, checks]));
    const shadow: Series = { label: 'would deny', tone: 'shadow', values: x.map((at) => found.get(at) ?? 0) };
    return { x, series: [denied, shadow] };
  }, [exact, counts.data, records.data, isShadow, would]);
  const { data, isPlaceholderData } = exact ? counts : records;
  if (!data) {
    return (
      <div style={{ minHeight: 164 }}>
        <LoadingLines lines={3} />
      </div>
    );
  }
  const isCertain = exact || !!records.data?.exact;
  const total = typeof data.total === 'number' ? data.total : data.total.denied;
  const { step_seconds } = data;
  const count = `${isCertain ? '' : 'At least '}${plural(total, 'check')}`;
  return (
    <div className={`${styles.over} ${isPlaceholderData ? styles.old : ''}`}>
      <Chart
        label={`${count} ${isShadow ? 'would have been' : 'were'} denied`}
        x={x}
        series={series}
        height={120}
        yMin={4}
        unfinished={isUnfinished(x, step_seconds)}
        onBrush={(from, until) => onBrush(...wholeSteps(from, until, step_seconds))}
      />
      {!exact && <p className={styles.hint}>{coverage(isCertain, records.data?.looked_back_to)}</p>}
    </div>
  );
}

function coverage(isCertain: boolean, back: string | null | undefined): string {
  const words = [
    !isCertain && 'Recorded violations only. The real number can be higher.',
    back && `From the latest 100,000 records, back to ${exactTime(Date.parse(back))}.`,
  ];
  return words.filter(Boolean).join(' ');
}

function isUnfinished(x: number[], stepSeconds: number): boolean {
  const last = x.at(-1);
  return last !== undefined && (last + stepSeconds) * 1000 > serverNow();
}
