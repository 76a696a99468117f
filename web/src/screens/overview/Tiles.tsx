import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { summaryQuery } from '~/api/traffic';
import type { Summary, Verdicts } from '~/api/types';
import { Num } from '~/components/Num';
import { duration, percent } from '~/domain/format';
import { earlier, type Span } from '~/domain/range';
import styles from './Overview.module.css';

/** All checks: each was allowed, denied or bypassed. */
export function checksOf({ allowed, denied, bypassed }: Verdicts): number {
  return allowed + denied + bypassed;
}

const day = 86_400_000;

interface Props {
  tenant: string;
  span: Span;
  summary: Summary;
}

/** The four numbers of the time: how much was asked, denied, would be denied, and decided without Redis. */
export function Tiles({ tenant, span, summary }: Props) {
  const { total, share_denied, shadow_rules } = summary;
  const checks = checksOf(total);
  const { from, until } = span.at(Date.now());
  const would = shadow_rules.reduce((sum, { denied }) => sum + denied, 0);
  return (
    <section className={styles.tiles} aria-label="Summary">
      <Tile label="Checks" value={<Num value={checks} />}>
        {perSecond(checks, until - from)} on average
      </Tile>
      <Tile label="Denied" value={share_denied === null ? '–' : percent(share_denied)} tone="denied">
        <Num value={total.denied} unit={total.denied === 1 ? 'check' : 'checks'} />{' '}
        <Yesterday tenant={tenant} span={span} now={share_denied} />
      </Tile>
      <Tile label="Shadow rules would deny" value={<Num value={would} />} tone="shadow">
        {shadow_rules.length === 0 ? (
          'no rule is in shadow mode'
        ) : (
          <Link to="/t/$tenant/violations" params={{ tenant }} search={{ mode: 'shadow', range: span.text }}>
            See who it would be
          </Link>
        )}
      </Tile>
      <Tile label="Decided without Redis" value={<Num value={total.degraded} />} tone="degraded">
        {total.degraded === 0
          ? 'Redis answered every check'
          : `${percent(total.degraded / checks)} of all checks`}
      </Tile>
    </section>
  );
}

interface TileProps {
  label: string;
  value: React.ReactNode;
  /** The hue of what is counted, unless it is nothing. */
  tone?: 'denied' | 'shadow' | 'degraded';
  children: React.ReactNode;
}

function Tile({ label, value, tone, children }: TileProps) {
  return (
    <div className={styles.tile} data-tone={tone}>
      <h2>{label}</h2>
      <p className={styles.value}>{value}</p>
      <p className={styles.note}>{children}</p>
    </div>
  );
}

/** The share at the same time yesterday; of a longer time, that of the time before. */
function Yesterday({ tenant, span, now }: { tenant: string; span: Span; now: number | null }) {
  const { from, until } = span.at(Date.now());
  const back = Math.max(day, until - from);
  const { data } = useQuery(summaryQuery(tenant, earlier(span, back)));
  if (!data || now === null) return null;
  const then = back === day ? 'yesterday' : `in the ${duration(back)} before`;
  if (data.share_denied === null) return <>· no checks {then}</>;
  return (
    <>
      · {percent(data.share_denied)} {then}
    </>
  );
}

function perSecond(count: number, ms: number): string {
  const rate = count / (ms / 1000);
  if (rate === 0) return 'none';
  return rate < 1 ? `${(rate * 60).toFixed(1)} per minute` : `${rate.toFixed(rate < 10 ? 1 : 0)} per second`;
}
