import { Tooltip } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { serverNow } from '~/api/clock';
import { seriesQuery, summaryQuery } from '~/api/traffic';
import type { Summary, Verdicts } from '~/api/types';
import { Num } from '~/components/Num';
import { duration, percent } from '~/domain/format';
import { meterAmount, meterUnit } from '~/domain/meter';
import { earlier, type Span } from '~/domain/range';
import styles from './Overview.module.css';
import { averageOf } from './rates';

export function checksOf({ allowed, denied, bypassed }: Verdicts): number {
  return allowed + denied + bypassed;
}

const day = 86_400_000;

interface Props {
  tenant: string;
  span: Span;
  meter: string | undefined;
  summary: Summary;
  old: boolean;
}

export function Tiles({ tenant, span, meter, summary, old }: Props) {
  const { total, share_denied, shadow_denied, from, until } = summary;
  const checks = checksOf(total);
  const series = useQuery(seriesQuery(tenant, span, { meter })); // that of the chart
  return (
    <section className={styles.tiles} aria-label="Summary" data-old={old || undefined} aria-busy={old}>
      <Tile label="Checks" value={<Num value={checks} />}>
        {meterUnit(meter)
          ? `cost ${meterAmount(total.cost, meter)}`
          : averageOf(checks, series.data, Date.parse(from), Date.parse(until))}
      </Tile>
      <Tile label="Denied" value={share_denied === null ? '–' : percent(share_denied)} tone="denied">
        <Num value={total.denied} unit={total.denied === 1 ? 'check' : 'checks'} />{' '}
        <Yesterday tenant={tenant} span={span} meter={meter} now={share_denied} />
      </Tile>
      {shadow_denied > 0 && (
        <Tile label="Shadow rules would deny" value={<Num value={shadow_denied} />} tone="shadow">
          <Link to="/t/$tenant/violations" params={{ tenant }} search={{ mode: 'shadow', range: span.text }}>
            View checks
          </Link>
        </Tile>
      )}
      {total.degraded > 0 && (
        <Tile
          label="Degraded decisions"
          hint="Decided by each rule’s failure mode, because Redis did not answer in time."
          value={<Num value={total.degraded} />}
          tone="degraded"
        >
          {percent(total.degraded / checks)} of all checks
        </Tile>
      )}
    </section>
  );
}

interface TileProps {
  label: string;
  value: React.ReactNode;
  tone?: 'denied' | 'shadow' | 'degraded';
  hint?: string;
  children: React.ReactNode;
}

function Tile({ label, hint, value, tone, children }: TileProps) {
  return (
    <div className={styles.tile} data-tone={tone}>
      {hint ? (
        <Tooltip label={hint} multiline w={240}>
          <h2>{label}</h2>
        </Tooltip>
      ) : (
        <h2>{label}</h2>
      )}
      <p className={styles.value}>{value}</p>
      <p className={styles.note}>{children}</p>
    </div>
  );
}

/** The share denied in the same range yesterday; for longer ranges, in the range before. */
function Yesterday({ tenant, span, meter, now }: Omit<Props, 'summary' | 'old'> & { now: number | null }) {
  const { from, until } = span.at(serverNow());
  const back = Math.max(day, until - from);
  const { data } = useQuery({ ...summaryQuery(tenant, earlier(span, back), meter), placeholderData: undefined });
  if (!data || now === null) return null;
  const then = back === day ? 'yesterday' : `in the previous ${duration(back)}`;
  if (data.share_denied === null) return <>· no checks {then}</>;
  return (
    <>
      · {percent(data.share_denied)} {then}
    </>
  );
}
