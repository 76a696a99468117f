import { Button } from '@mantine/core';
import { Link } from '@tanstack/react-router';
import { useMemo, useState } from 'react';
import { Chart } from '~/charts/Chart';
import { type Column, DataTable } from '~/components/DataTable';
import { Card } from '~/components/Page';
import { exactNumber, percent, plural, shortNumber } from '~/domain/format';
import { identityLabel } from '~/domain/rule';
import type { Figure, Replay, ReplayResult } from '~/features/replay/queries';
import styles from './Replays.module.css';
import { agreement, counted, sampleWords, signed, sinceWords } from './words';

interface Props {
  tenant: string;
  replay: Replay;
  result: ReplayResult;
}

type OfRule = ReplayResult['rules'][number];

export function Result({ tenant, replay, result }: Props) {
  const notes = [
    sampleWords(replay, result.share) ?? '',
    ...sinceWords(result),
    ...result.notes,
    ...result.left_out.map(({ rule, why }) => `Left out: “${identityLabel(rule)}”, because ${why}.`),
    result.left_out.length > 0 ? 'What left-out rules denied stays denied.' : '',
  ];
  const enforced = result.rules.filter(({ mode }) => mode !== 'shadow');
  const shadow = result.rules.filter(({ mode }) => mode === 'shadow');
  const moved = enforced.some(({ from_other_rules }) => from_other_rules.value !== 0);
  return (
    <>
      <Card title="In all" lead={agreement(result.agreeing, result.read)}>
        <div className={styles.figures}>
          <Total name="Checks" figure={result.checks} />
          <Total name="Denied then" figure={result.denied_then} of={result.checks} />
          <Total name="Newly denied" sign="+" figure={result.newly_denied} of={result.checks} />
          <Total name="No longer denied" sign="−" figure={result.no_longer_denied} of={result.checks} />
          <Total name="Denied with the change" figure={result.denied_now} of={result.checks} />
        </div>
        {notes.filter(Boolean).map((note) => (
          <p key={note} className="soft">
            {note}
          </p>
        ))}
      </Card>
      {result.users.length > 0 && <Users tenant={tenant} result={result} />}
      <Card title="Over time" lead={`Checks per ${stepWords(result.step_seconds)}.`}>
        <Lines result={result} />
      </Card>
      <Card
        title="By rule"
        lead={moved && '“From other rules”: denied either way, by another rule then (+) or with the change (−).'}
        flush
      >
        <Rules label="By rule" rows={enforced} columns={[byRule(tenant), ...counts(sums, moved)]} />
      </Card>
      {shadow.length > 0 && (
        <Card title="In shadow mode" lead="In no other figure" flush>
          <Rules label="In shadow mode" rows={shadow} columns={[byRule(tenant), ...counts(wouldBe)]} />
        </Card>
      )}
      {result.more_rules > 0 && <p className="soft">And {plural(result.more_rules, 'more rule')}.</p>}
      <Card title="By plan" flush>
        <DataTable
          label="By plan"
          columns={[byPlan, ...counts(sums)]}
          rows={result.plans}
          rowKey={({ plan }) => plan ?? ''}
        />
      </Card>
      {result.listed.length > 0 && (
        <Card title="Denied outside of the sample" lead="Not in the totals">
          <p>
            {result.listed.map(({ user_id, ip, denied }) => `${user_id ?? ip} (${exactNumber(denied)})`).join(', ')}
          </p>
        </Card>
      )}
    </>
  );
}

function Rules(table: { label: string; rows: OfRule[]; columns: Column<OfRule>[] }) {
  return <DataTable {...table} rowKey={({ rule }) => rule} />;
}

const few = 10;

function Users({ tenant, result: { users, more_users, share } }: { tenant: string; result: ReplayResult }) {
  const [all, setAll] = useState(false);
  return (
    <Card
      title="By user"
      lead={`Most affected first${share < 1 ? '. These are counts of the sample, not of all users' : ''}.`}
      flush
    >
      <DataTable
        label="By user"
        columns={[byUser(tenant), ...counts(sums)]}
        rows={all ? users : users.slice(0, few)}
        rowKey={({ user_id, ip }) => `${user_id} ${ip}`}
      />
      {!all && users.length > few && (
        <Button variant="subtle" fullWidth onClick={() => setAll(true)}>
          Show all {users.length}
        </Button>
      )}
      {(all || users.length <= few) && more_users > 0 && (
        <p className={`soft ${styles.more}`}>And {plural(more_users, 'more user')}.</p>
      )}
    </Card>
  );
}

interface TotalProps {
  name: string;
  sign?: '+' | '−';
  figure: Figure;
  of?: Figure;
}

function Total({ name, sign, figure, of }: TotalProps) {
  return (
    <div>
      <span className="soft">{name}</span>
      <strong>{sign ? signed(sign, counted(figure)) : counted(figure)}</strong>
      {of && of.value > 0 && <span className="soft">{percent(figure.value / of.value)}</span>}
    </div>
  );
}

const lines = [
  { of: 'denied_then', label: 'denied then', tone: 'neutral', dashed: true },
  { of: 'denied_now', label: 'denied with the change', tone: 'denied' },
  { of: 'newly_denied', label: 'newly denied', tone: 'accent' },
  { of: 'no_longer_denied', label: 'no longer denied', tone: 'allowed' },
] as const;

function Lines({ result }: { result: ReplayResult }) {
  const x = useMemo(() => result.steps.map(({ at }) => Date.parse(at) / 1000), [result]);
  const series = useMemo(
    () => lines.map(({ of, ...line }) => ({ ...line, values: result.steps.map((step) => step[of]) })),
    [result],
  );
  return (
    <Chart
      label={`${counted(result.newly_denied)} checks newly denied, ${counted(result.no_longer_denied)} no longer`}
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
  from_other_rules?: Figure;
}

const text = (figure: Figure | number) => (typeof figure === 'number' ? exactNumber(figure) : counted(figure));

const sums = {
  before: 'Denied then',
  added: 'Newly denied',
  removed: 'No longer denied',
  after: 'Denied with the change',
};

const wouldBe = {
  before: 'Would deny then',
  added: 'Newly',
  removed: 'No longer',
  after: 'Would deny with the change',
};

function counts<Row extends Counts>(headers: typeof sums, moved = false): Column<Row>[] {
  const column = (header: string, width: string, render: Column<Row>['render']): Column<Row> => {
    return { key: header, header, width, numeric: true, under: true, render };
  };
  const fromOthers = ({ from_other_rules: figure }: Row) =>
    figure && signed(figure.value < 0 ? '−' : '+', counted({ ...figure, value: Math.abs(figure.value) }));
  return [
    column(headers.before, '11%', (row) => text(row.denied_then)),
    column(headers.added, '13%', (row) => signed('+', text(row.newly_denied))),
    column(headers.removed, '13%', (row) => signed('−', text(row.no_longer_denied))),
    ...(moved ? [column('From other rules', '13%', fromOthers)] : []),
    column(headers.after, '17%', (row) => text(row.denied_now)),
  ];
}

const byRule = (tenant: string): Column<OfRule> => ({
  key: 'rule',
  header: 'Rule',
  render: ({ rule_id, rule, is_changed }) => (
    <>
      {rule_id === null ? (
        identityLabel(rule)
      ) : (
        <Link to="/t/$tenant/rules/$rule" params={{ tenant, rule: String(rule_id) }}>
          {identityLabel(rule)}
        </Link>
      )}{' '}
      <span className="soft">{rule_id === null ? 'new' : is_changed && 'changed'}</span>
    </>
  ),
});

const byPlan: Column<ReplayResult['plans'][number]> = {
  key: 'plan',
  header: 'Plan',
  render: ({ plan }) => plan ?? 'no plan',
};

const byUser = (tenant: string): Column<ReplayResult['users'][number]> => ({
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
});
