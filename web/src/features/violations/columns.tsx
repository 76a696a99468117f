import { Tooltip } from '@mantine/core';
import type { Rule, Violation } from '~/api/types';
import type { Column } from '~/components/DataTable';
import { Num } from '~/components/Num';
import { Outcome } from '~/components/Outcome';
import { RuleName } from '~/components/RuleLink';
import { Duration, RelativeTime } from '~/components/Time';
import { exactNumber } from '~/domain/format';
import { rateShort, unitOf } from '~/domain/rate';
import { ruleTitle } from '~/domain/rule';
import { endpointOf } from '~/domain/violation';
import styles from './violations.module.css';

const columnsWith = (rules: Rule[]): Column<Violation>[] => [
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
    width: 152,
    names: true,
    render: (violation) => <Who violation={violation} />,
  },
  {
    key: 'endpoint',
    header: 'Endpoint',
    width: '16%',
    under: true,
    render: (violation) => endpointOf(violation) ?? <span className="soft">none</span>,
  },
  {
    key: 'rule',
    header: 'Rule',
    under: true,
    render: ({ rule_id, key_pattern, meter }) => {
      const rule = rules.find((one) => one.rule_id === rule_id);
      return (
        <span className={styles.rule}>
          {rule ? <RuleName id={rule_id} rule={rule} /> : ruleTitle({ key_pattern, name: '', meter })}
        </span>
      );
    },
  },
  {
    key: 'limit',
    header: 'Limit',
    width: 136,
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
  {
    key: 'queue',
    header: 'Delay',
    width: 88,
    numeric: true,
    wide: true,
    render: ({ queue_ms }) => queue_ms !== null && <Duration ms={queue_ms} />,
  },
];

export function violationColumns(rules: Rule[], rows: Violation[], without?: 'who'): Column<Violation>[] {
  const queues = rows.some(({ queue_ms }) => queue_ms !== null);
  return columnsWith(rules).filter(({ key }) => key !== without && (queues || key !== 'queue'));
}

export function OutcomeOf({ violation: { mode, reason } }: { violation: Violation }) {
  if (mode === 'shadow') return <Outcome tone="shadow">Shadow</Outcome>;
  if (reason === 'store_unavailable') return <Outcome tone="degraded">Denied, degraded</Outcome>;
  const word = {
    blocked: 'Blocked',
    cost_exceeds_limit: 'Cost too high',
    limit_exceeded: 'Denied',
    concurrency_exceeded: 'Too many at once',
    reservations_exhausted: 'Too many reservations',
  }[reason];
  return <Outcome tone="denied">{word}</Outcome>;
}

function LimitThen({ violation }: { violation: Violation }) {
  const { rate_per_second, burst_capacity, algorithm, limit_text: sentence } = violation;
  if (!sentence) return <span className="soft">Blocks</span>;
  if (algorithm !== 'token_bucket') return <span title={sentence}>{sentence}</span>;
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
  if (user_id === null) return <>{ip_address ?? <span className="soft">Anonymous</span>}</>;
  return (
    <>
      {user_id} {ip_address && <span className={styles.address}>{ip_address}</span>}
    </>
  );
}
