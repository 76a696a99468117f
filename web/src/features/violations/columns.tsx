import { Tooltip } from '@mantine/core';
import type { Violation } from '~/api/types';
import type { Column } from '~/components/DataTable';
import { Num } from '~/components/Num';
import { Outcome } from '~/components/Outcome';
import { Duration, RelativeTime } from '~/components/Time';
import { exactNumber } from '~/domain/format';
import { rateShort, unitOf } from '~/domain/rate';
import { endpointOf, limitThen } from '~/domain/violation';
import styles from './violations.module.css';

const all: Column<Violation>[] = [
  { key: 'at', header: 'When', width: 96, render: ({ last_at }) => <RelativeTime at={last_at} /> },
  {
    key: 'outcome',
    header: 'Outcome',
    width: 112,
    render: (violation) => <OutcomeOf violation={violation} />,
  },
  {
    key: 'who',
    header: 'Who',
    width: 168,
    names: true,
    render: (violation) => <Who violation={violation} />,
  },
  {
    key: 'endpoint',
    header: 'Endpoint',
    wide: true,
    render: (violation) => endpointOf(violation) ?? <span className="soft">none</span>,
  },
  { key: 'rule', header: 'Rule', wide: true, render: ({ key_pattern }) => <code>{key_pattern}</code> },
  {
    key: 'limit',
    header: 'Limit then',
    width: 148,
    wide: true,
    render: (violation) => <LimitThen violation={violation} />,
  },
  { key: 'count', header: 'Checks', width: 72, numeric: true, render: ({ count }) => <Num value={count} /> },
  {
    key: 'wait',
    header: 'Wait',
    width: 88,
    numeric: true,
    wide: true,
    render: ({ retry_after_ms }) =>
      retry_after_ms === null ? <span className="soft">none</span> : <Duration ms={retry_after_ms} />,
  },
];

/** The columns of a list of violations; on the page of a user or a rule without the one that says the same. */
export function violationColumns(...without: ('who' | 'rule')[]): Column<Violation>[] {
  return all.filter(({ key }) => !without.some((one) => one === key));
}

/** "Denied", "Blocked", or what a shadow rule would have done. */
export function OutcomeOf({ violation: { mode, reason } }: { violation: Violation }) {
  if (mode === 'shadow') return <Outcome tone="shadow">Shadow</Outcome>;
  if (reason === 'store_unavailable') return <Outcome tone="degraded">No Redis</Outcome>;
  const word = { blocked: 'Blocked', cost_exceeds_limit: 'Too costly', limit_exceeded: 'Denied' }[reason];
  return <Outcome tone="denied">{word}</Outcome>;
}

function LimitThen({ violation }: { violation: Violation }) {
  const { rate_per_second, burst_capacity } = violation;
  const sentence = limitThen(violation);
  if (sentence === null) return <span className="soft">blocks</span>;
  const rate = rateShort({ rate_per_second, rate_unit: unitOf(rate_per_second) });
  return (
    <Tooltip label={sentence}>
      <span>
        {rate}, bursts to {exactNumber(burst_capacity)}
      </span>
    </Tooltip>
  );
}

function Who({ violation: { user_id, ip_address } }: { violation: Violation }) {
  if (user_id === null) return <>{ip_address ?? <span className="soft">nobody</span>}</>;
  return (
    <>
      {user_id} {ip_address && <span className={styles.address}>{ip_address}</span>}
    </>
  );
}
