import { Link } from '@tanstack/react-router';
import { useMemo } from 'react';
import { Chart } from '~/charts/Chart';
import { type Column, DataTable } from '~/components/DataTable';
import { Card } from '~/components/Page';
import { exactNumber, percent, plural, shortNumber } from '~/domain/format';
import type { Figure, Replay, ReplayResult } from '~/features/replay/queries';
import styles from './Replays.module.css';
import { agreement, counted, sampleWords } from './words';

interface Props {
  tenant: string;
  replay: Replay;
  result: ReplayResult;
}

/** What a replay found: in all, over time, and by rule, plan and user. */
export function Result({ tenant, replay, result }: Props) {
  const sample = sampleWords(replay, result.share);
  return (
    <>
      <Card title="In all" lead={agreement(result.agreeing, result.read)}>
        <div className={styles.figures}>
          <Total name="Checks" figure={result.checks} />
          <Total name="Denied then" figure={result.denied_then} of={result.checks} />
          <Total name="Denied now" figure={result.denied_now} of={result.checks} />
          <Total name="Newly denied" figure={result.newly_denied} of={result.checks} />
          <Total name="No longer denied" figure={result.no_longer_denied} of={result.checks} />
        </div>
        {sample && <p className="soft">{sample}</p>}
        {result.notes.map((note) => (
          <p key={note} className="soft">
            {note}
          </p>
        ))}
        {result.left_out.map(({ rule, why }) => (
          <p key={rule} className="soft">
            Left out: <code>{rule}</code>, because {why}.
          </p>
        ))}
        {result.left_out.length > 0 && <p className="soft">What left-out rules denied stays denied.</p>}
      </Card>
      <Card title="Over time" lead={`Checks per ${stepWords(result.step_seconds)}.`}>
        <Lines result={result} />
      </Card>
      <Card title="By rule" flush>
        <DataTable label="By rule" columns={byRule(tenant)} rows={result.rules} rowKey={({ rule }) => rule} />
      </Card>
      {result.more_rules > 0 && <p className="soft">And {plural(result.more_rules, 'more rule')}.</p>}
      <Card title="By plan" flush>
        <DataTable label="By plan" columns={byPlan} rows={result.plans} rowKey={({ plan }) => plan ?? ''} />
      </Card>
      {result.users.length > 0 && (
        <Card
          title="By user"
          lead="Those with the most checks that are decided otherwise. The figures are not scaled."
          flush
        >
          <DataTable
            label="By user"
            columns={byUser(tenant)}
            rows={result.users}
            rowKey={({ user_id, ip }) => `${user_id} ${ip}`}
          />
        </Card>
      )}
      {result.more_users > 0 && <p className="soft">And {plural(result.more_users, 'more user')}.</p>}
      {result.listed.length > 0 && (
        <Card
          title="Denied outside of the sample"
          lead="They were denied when their checks came. Nothing is concluded from them."
        >
          <p>
            {result.listed
              .map(({ user_id, ip, denied }) => `${user_id ?? ip} (${exactNumber(denied)})`)
              .join(', ')}
          </p>
        </Card>
      )}
    </>
  );
}

function Total({ name, figure, of }: { name: string; figure: Figure; of?: Figure }) {
  return (
    <div>
      <span className="soft">{name}</span>
      <strong>{counted(figure)}</strong>
      {of && of.value > 0 && <span className="soft">{percent(figure.value / of.value)}</span>}
    </div>
  );
}

function Lines({ result }: { result: ReplayResult }) {
  const x = useMemo(() => result.steps.map(({ at }) => Date.parse(at) / 1000), [result]);
  const series = useMemo(
    () => [
      {
        label: 'denied then',
        tone: 'neutral' as const,
        values: result.steps.map((step) => step.denied_then),
        dashed: true,
      },
      { label: 'denied now', tone: 'denied' as const, values: result.steps.map((step) => step.denied_now) },
      {
        label: 'newly denied',
        tone: 'accent' as const,
        values: result.steps.map((step) => step.newly_denied),
      },
      {
        label: 'no longer denied',
        tone: 'allowed' as const,
        values: result.steps.map((step) => step.no_longer_denied),
      },
    ],
    [result],
  );
  return (
    <Chart
      label={`${counted(result.newly_denied)} checks are newly denied over this time, and ${counted(result.no_longer_denied)} no longer`}
      x={x}
      series={series}
      height={220}
      yMin={4}
      format={(value) => shortNumber(Math.round(value))}
    />
  );
}

function stepWords(seconds: number): string {
  if (seconds < 60) return plural(seconds, 'second');
  if (seconds < 3600) return plural(seconds / 60, 'minute');
  return plural(seconds / 3600, 'hour');
}

interface Counts {
  denied_then: Figure | number;
  denied_now: Figure | number;
  newly_denied: Figure | number;
  no_longer_denied: Figure | number;
}

const text = (figure: Figure | number) =>
  typeof figure === 'number' ? exactNumber(figure) : counted(figure);

function counts<Row extends Counts>(): Column<Row>[] {
  return [
    {
      key: 'then',
      header: 'Denied then',
      width: '13%',
      numeric: true,
      wide: true,
      render: (row) => text(row.denied_then),
    },
    {
      key: 'now',
      header: 'Denied now',
      width: '13%',
      numeric: true,
      wide: true,
      render: (row) => text(row.denied_now),
    },
    {
      key: 'newly',
      header: 'Newly denied',
      width: '16%',
      numeric: true,
      render: (row) => text(row.newly_denied),
    },
    {
      key: 'freed',
      header: 'No longer denied',
      width: '16%',
      numeric: true,
      render: (row) => text(row.no_longer_denied),
    },
  ];
}

const byRule = (tenant: string): Column<ReplayResult['rules'][number]>[] => [
  {
    key: 'rule',
    header: 'Rule',
    render: ({ rule_id, rule, mode, is_changed }) => (
      <>
        {rule_id === null ? (
          <code>{rule}</code>
        ) : (
          <Link to="/t/$tenant/rules/$rule" params={{ tenant, rule: String(rule_id) }}>
            <code>{rule}</code>
          </Link>
        )}{' '}
        <span className="soft">
          {[
            rule_id === null && 'new',
            is_changed && rule_id !== null && 'changed',
            mode === 'shadow' && 'shadow',
          ]
            .filter(Boolean)
            .join(', ')}
        </span>
      </>
    ),
  },
  ...counts<ReplayResult['rules'][number]>(),
];

const byPlan: Column<ReplayResult['plans'][number]>[] = [
  { key: 'plan', header: 'Plan', render: ({ plan }) => plan ?? 'no plan' },
  ...counts<ReplayResult['plans'][number]>(),
];

const byUser = (tenant: string): Column<ReplayResult['users'][number]>[] => [
  {
    key: 'user',
    header: 'User',
    render: ({ user_id, ip, plan }) => (
      <>
        {user_id === null ? (
          ip
        ) : (
          <Link to="/t/$tenant/users/$user" params={{ tenant, user: user_id }} className={styles.user}>
            {user_id}
          </Link>
        )}{' '}
        <span className="soft">{plan}</span>
      </>
    ),
  },
  ...counts<ReplayResult['users'][number]>(),
];
