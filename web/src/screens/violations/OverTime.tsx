import { useQuery } from '@tanstack/react-query';
import { useMemo } from 'react';
import { rulesQuery } from '~/api/queries';
import { seriesQuery } from '~/api/traffic';
import type { Violation } from '~/api/types';
import { Chart } from '~/charts/Chart';
import { LoadingLines } from '~/components/states';
import { plural } from '~/domain/format';
import { type Moments, type Span, wholeSteps } from '~/domain/range';
import type { ViolationsSearch } from '~/search';
import { countBars } from './bars';
import styles from './Violations.module.css';

interface Props {
  tenant: string;
  span: Span;
  search: ViolationsSearch;
  /** What the list has found so far. */
  found: Violation[];
  /** The time that the list is of. */
  moments: Moments | undefined;
  onBrush: (from: number, until: number) => void;
}

/**
 * How many checks were denied over time. All denials, or one rule's, are counted exactly by the server.
 * For other filters there are no such counts: what the list has found so far is drawn, and said to be so.
 */
export function OverTime(props: Props) {
  const { search } = props;
  const others = search.user ?? search.ip ?? search.endpoint ?? search.scope ?? search.plan;
  const exact = others === undefined && (search.rule !== undefined || search.mode !== 'shadow');
  return exact ? <Exact {...props} /> : <Found {...props} />;
}

function Exact({ tenant, span, search, onBrush }: Props) {
  const { data } = useQuery(seriesQuery(tenant, span, search.rule));
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
      onBrush={onBrush}
    />
  );
}

function Found({ found, moments, search, onBrush }: Props) {
  const bars = useMemo(() => moments && countBars(found, moments), [found, moments]);
  if (!bars) return <Waiting />;
  const total = bars.counts.reduce((sum, count) => sum + count, 0);
  return (
    <Bars {...bars} shadow={search.mode === 'shadow'} total={total} onBrush={onBrush}>
      Drawn from the {plural(found.length, 'violation')} found below so far.
    </Bars>
  );
}

interface BarsProps {
  x: number[];
  counts: number[];
  shadow: boolean;
  total: number;
  stepSeconds: number;
  onBrush: (from: number, until: number) => void;
  children?: React.ReactNode;
}

function Bars({ x, counts, shadow, total, stepSeconds, onBrush, children }: BarsProps) {
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
    <div className={styles.over}>
      <Chart
        label={`${plural(total, 'check')} ${shadow ? 'would have been' : 'were'} denied over this time`}
        x={x}
        series={series}
        height={120}
        yMin={4}
        onBrush={(from, until) => onBrush(...wholeSteps(from, until, stepSeconds))}
      />
      <p className={styles.hint}>{children} Drag over the chart to look closer.</p>
    </div>
  );
}

function Waiting() {
  return (
    <div style={{ minHeight: 164 }}>
      <LoadingLines lines={3} />
    </div>
  );
}
