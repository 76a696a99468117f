import { useQuery } from '@tanstack/react-query';
import { useMemo } from 'react';
import { serverNow } from '~/api/clock';
import { rulesQuery } from '~/api/queries';
import { seriesQuery, violationSeriesQuery } from '~/api/traffic';
import { filterOf, type ViolationFilter } from '~/api/violations';
import { Chart } from '~/charts/Chart';
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
 * Denied checks over time, with the filters of the rows. All denials and those of one rule are exact counts. Other
 * filters and shadow rules use violation records, which can miss the oldest.
 */
export function OverTime(props: Props) {
  return isExact(props.search) ? <Exact {...props} /> : <Recorded {...props} />;
}

function Exact({ tenant, span, search, onBrush }: Props) {
  const { data, isPlaceholderData } = useQuery(seriesQuery(tenant, span, { rule_id: search.rule }));
  const { data: rules } = useQuery(rulesQuery(tenant));
  const x = useMemo(() => data?.points.map(({ at }) => Date.parse(at) / 1000) ?? [], [data]);
  // The rows are also those of shadow rules, which the counts of all checks leave out.
  const both = search.rule === undefined && search.mode === undefined;
  const would = useShadows(tenant, span, {}, both, x);
  const isShadow = rules?.find(({ rule_id }) => rule_id === search.rule)?.mode === 'shadow';
  const denied = useMemo(() => data?.points.map((point) => point.denied) ?? [], [data]);
  if (!data) return <Waiting />;
  return (
    <Bars
      x={x}
      counts={denied}
      would={would}
      shadow={isShadow}
      total={data.total.denied}
      stepSeconds={data.step_seconds}
      old={isPlaceholderData}
      onBrush={onBrush}
    />
  );
}

/** What shadow rules would have denied at these times; undefined if it is not wanted or nothing. */
function useShadows(tenant: string, span: Span, filter: ViolationFilter, enabled: boolean, x: number[]) {
  const { data } = useQuery({ ...violationSeriesQuery(tenant, span, { ...filter, mode: 'shadow' }), enabled });
  return useMemo(() => {
    if (!enabled || !data || data.total === 0) return undefined;
    const counts = new Map(data.points.map(({ at, checks }) => [Date.parse(at) / 1000, checks]));
    return x.map((at) => counts.get(at) ?? 0);
  }, [enabled, data, x]);
}

function Recorded({ tenant, span, search, onBrush }: Props) {
  const filter = filterOf(search);
  const both = search.mode === undefined;
  const query = violationSeriesQuery(tenant, span, both ? { ...filter, mode: 'enforce' } : filter);
  const { data, isPlaceholderData } = useQuery(query);
  const x = useMemo(() => data?.points.map(({ at }) => Date.parse(at) / 1000) ?? [], [data]);
  const would = useShadows(tenant, span, filter, both, x);
  const checks = useMemo(() => data?.points.map((point) => point.checks) ?? [], [data]);
  if (!data) return <Waiting />;
  return (
    <Bars
      x={x}
      counts={checks}
      would={would}
      shadow={search.mode === 'shadow'}
      total={data.total}
      stepSeconds={data.step_seconds}
      old={isPlaceholderData}
      atLeast
      onBrush={onBrush}
    >
      Recorded violations only. The real number can be higher.{' '}
      {data.looked_back_to && `From the latest 100,000 records, back to ${exactTime(Date.parse(data.looked_back_to))}.`}
    </Bars>
  );
}

interface BarsProps {
  x: number[];
  counts: number[];
  would?: number[];
  shadow: boolean;
  total: number;
  stepSeconds: number;
  old: boolean;
  atLeast?: boolean;
  onBrush: (from: number, until: number) => void;
  children?: React.ReactNode;
}

function Bars({ x, counts, would, shadow, total, stepSeconds, old, atLeast, onBrush, children }: BarsProps) {
  const series = useMemo(
    () => [
      {
        label: shadow ? 'would deny' : 'denied',
        tone: shadow ? ('shadow' as const) : ('denied' as const),
        values: counts,
        bars: true,
      },
      ...(would ? [{ label: 'would deny', tone: 'shadow' as const, values: would }] : []),
    ],
    [counts, would, shadow],
  );
  return (
    <div className={`${styles.over} ${old ? styles.old : ''}`}>
      <Chart
        label={`${atLeast ? 'At least ' : ''}${plural(total, 'check')} ${shadow ? 'would have been' : 'were'} denied`}
        x={x}
        series={series}
        height={120}
        yMin={4}
        unfinished={isUnfinished(x, stepSeconds)}
        onBrush={(from, until) => onBrush(...wholeSteps(from, until, stepSeconds))}
      />
      <p className={styles.hint}>{children} Drag over the chart to zoom in.</p>
    </div>
  );
}

function isUnfinished(x: number[], stepSeconds: number): boolean {
  const last = x.at(-1);
  return last !== undefined && (last + stepSeconds) * 1000 > serverNow();
}

function Waiting() {
  return (
    <div style={{ minHeight: 164 }}>
      <LoadingLines lines={3} />
    </div>
  );
}
