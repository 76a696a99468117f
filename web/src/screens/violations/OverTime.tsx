import { useQuery } from '@tanstack/react-query';
import { useMemo } from 'react';
import { serverNow } from '~/api/clock';
import { rulesQuery } from '~/api/queries';
import { seriesQuery, violationSeriesQuery } from '~/api/traffic';
import { filterOf } from '~/api/violations';
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

/**
 * Denied checks over time. All denials and those of one rule come from exact counts. Other filters use
 * violation records, which can miss the oldest.
 */
export function OverTime(props: Props) {
  const { search } = props;
  const others = search.user ?? search.ip ?? search.endpoint ?? search.scope ?? search.plan;
  const exact = others === undefined && (search.rule !== undefined || search.mode !== 'shadow');
  return exact ? <Exact {...props} /> : <Recorded {...props} />;
}

function Exact({ tenant, span, search, onBrush }: Props) {
  const { data, isPlaceholderData } = useQuery(seriesQuery(tenant, span, search.rule));
  const { data: rules } = useQuery(rulesQuery(tenant));
  const shadow = rules?.find(({ rule_id }) => rule_id === search.rule)?.mode === 'shadow';
  const x = useMemo(() => data?.points.map(({ at }) => Date.parse(at) / 1000) ?? [], [data]);
  const denied = useMemo(() => data?.points.map((point) => point.denied) ?? [], [data]);
  if (!data) return <Waiting />;
  return (
    <Bars
      x={x}
      counts={denied}
      shadow={shadow}
      total={data.total.denied}
      stepSeconds={data.step_seconds}
      old={isPlaceholderData}
      onBrush={onBrush}
    />
  );
}

function Recorded({ tenant, span, search, onBrush }: Props) {
  const { data, isPlaceholderData } = useQuery(violationSeriesQuery(tenant, span, filterOf(search)));
  const x = useMemo(() => data?.points.map(({ at }) => Date.parse(at) / 1000) ?? [], [data]);
  const checks = useMemo(() => data?.points.map((point) => point.checks) ?? [], [data]);
  if (!data) return <Waiting />;
  return (
    <Bars
      x={x}
      counts={checks}
      shadow={search.mode === 'shadow'}
      total={data.total}
      stepSeconds={data.step_seconds}
      old={isPlaceholderData}
      atLeast
      onBrush={onBrush}
    >
      Recorded violations only. The real number can be higher.{' '}
      {data.looked_back_to &&
        `From the latest 100,000 records, back to ${exactTime(Date.parse(data.looked_back_to))}.`}
    </Bars>
  );
}

interface BarsProps {
  x: number[];
  counts: number[];
  shadow: boolean;
  total: number;
  stepSeconds: number;
  /** The counts are still those of another time range. */
  old: boolean;
  /** The counts are lower bounds. */
  atLeast?: boolean;
  onBrush: (from: number, until: number) => void;
  children?: React.ReactNode;
}

function Bars({ x, counts, shadow, total, stepSeconds, old, atLeast, onBrush, children }: BarsProps) {
  const series = useMemo(
    () => [
      {
        label: shadow ? 'would deny' : 'denied',
        tone: shadow ? ('shadow' as const) : ('denied' as const),
        values: counts,
        bars: true,
      },
    ],
    [counts, shadow],
  );
  return (
    <div className={`${styles.over} ${old ? styles.old : ''}`}>
      <Chart
        label={`${atLeast ? 'At least ' : ''}${plural(total, 'check')} ${shadow ? 'would have been' : 'were'} denied over this time`}
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

/** Whether the interval of the last bar has not ended. */
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
