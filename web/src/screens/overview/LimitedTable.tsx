import { Button } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { lazy, Suspense, useState } from 'react';
import { busiestQuery, presentQuery } from '~/api/traffic';
import { actsColumn, countColumn } from '~/components/columns';
import { type Column, DataTable } from '~/components/DataTable';
import { Num } from '~/components/Num';
import { Card } from '~/components/Page';
import { Query } from '~/components/Query';
import { LoadingLines } from '~/components/states';
import { percent, shortNumber } from '~/domain/format';
import { type Group, groupFilter, groupNouns } from '~/domain/group';
import type { Span } from '~/domain/range';
import { ruleTitle } from '~/domain/rule';
import { Blocked, useBlock } from '~/features/temporary/Blocked';
import { useRole } from '~/session';
import { type Answer, atPresent, floods, type Limited, limitedQuery, standsOut, topCallers } from './limited';
import styles from './Overview.module.css';

const TemporaryRule = lazy(() => import('~/features/temporary/TemporaryRule'));

const trends = { up: '↑', down: '↓', steady: '' };
const trendWords = { up: 'rising', down: 'falling', steady: 'steady' };

interface Props {
  tenant: string;
  span: Span;
  meter: string | undefined;
}

export function LimitedTable({ tenant, span, meter }: Props) {
  const limited = useQuery(limitedQuery(tenant, span, meter));
  const user = useQuery(presentQuery(tenant, 'user', meter)).data;
  const network = useQuery(presentQuery(tenant, 'network', meter)).data;
  // Checks are counted for the present and all meters only.
  const counted = { enabled: span.moves && meter === undefined };
  const busyUsers = useQuery({ ...busiestQuery(tenant, 'user'), ...counted }).data;
  const busyNetworks = useQuery({ ...busiestQuery(tenant, 'network'), ...counted }).data;
  const busiest = counted.enabled ? { user: busyUsers, network: busyNetworks } : {};
  const answer = limited.data && atPresent(limited.data, { user, network });
  const rows = answer && topCallers(answer, busiest);
  const [blocking, setBlocking] = useState<Limited | null>(null);
  const { edit } = useRole();
  const block = edit ? setBlocking : undefined;
  return (
    <>
      {answer && <Attack tenant={tenant} answer={answer} busiest={busiest} onBlock={block} />}
      <Card
        title="Top callers"
        actions={
          <Link to="/t/$tenant/violations" params={{ tenant }} search={{ group: 'user', range: span.text }}>
            All denials
          </Link>
        }
        flush
      >
        <Query query={limited} loading={<LoadingLines lines={6} />}>
          {({ isPart }) =>
            !rows || rows.length === 0 ? (
              <p className={styles.none}>Nobody was denied.</p>
            ) : (
              <div className={limited.isPlaceholderData ? styles.old : undefined}>
                <DataTable
                  label="Top callers"
                  columns={columnsOf(tenant, span, block)}
                  rows={rows}
                  rowKey={({ group: { by, value } }) => `${by} ${value}`}
                />
                {isPart && (
                  <p className={styles.part}>“Denied” can be higher: there were too many callers to count each.</p>
                )}
              </div>
            )
          }
        </Query>
      </Card>
      {blocking && (
        <Suspense fallback={null}>
          <TemporaryRule
            tenant={tenant}
            group={blocking.group}
            action="block"
            denied={blocking.denied || undefined}
            onClose={() => setBlocking(null)}
          />
        </Suspense>
      )}
    </>
  );
}

interface AttackProps {
  tenant: string;
  answer: Answer;
  busiest: Parameters<typeof floods>[1];
  onBlock: ((row: Limited) => void) | undefined;
}

function Attack({ tenant, answer, busiest, onBlock }: AttackProps) {
  const flood = floods(answer, busiest);
  // A source whose checks are mostly denied is described by its denials.
  const denied = standsOut(answer, busiest);
  const most = denied && flood && flood.checks > 2 * denied.now ? undefined : denied;
  const source = most ?? flood?.source;
  if (!source) return null;
  const { group, now, endpoint } = source;
  return (
    <div role="status" className={styles.attack}>
      <p>
        <strong>
          {group.by === 'user' ? 'User' : 'Network'} {group.value}
        </strong>{' '}
        {most || !flood ? (
          <>
            makes {percent(Math.min(1, now / answer.now))} of all denials: {shortNumber(now)} a minute
            {endpoint && `, mostly on ${endpoint}`}.
          </>
        ) : (
          <>
            makes {percent(flood.share)} of all checks: {shortNumber(flood.checks)} a minute,{' '}
            {now > 0 ? shortNumber(now) : 'none'} denied.
          </>
        )}
      </p>
      <Act tenant={tenant} row={source} onBlock={onBlock} />
    </div>
  );
}

function columnsOf(tenant: string, span: Span, onBlock: AttackProps['onBlock']): Column<Limited>[] {
  return [
    {
      key: 'who',
      header: 'Who',
      render: ({ group }) => (
        <>
          <Who tenant={tenant} span={span} group={group} />{' '}
          <span className="soft">{group.by === 'network' && groupNouns.network}</span>
        </>
      ),
    },
    {
      key: 'rule',
      header: 'Limited by',
      under: true,
      render: ({ rule }) =>
        rule ? (
          <Link to="/t/$tenant/rules/$rule" params={{ tenant, rule: String(rule.rule_id) }} title={rule.key_pattern}>
            {ruleTitle({ name: '', ...rule })}
          </Link>
        ) : (
          '—'
        ),
    },
    { key: 'where', header: 'Where', wide: true, render: ({ endpoint }) => endpoint },
    {
      key: 'checks',
      header: 'Checks a minute',
      width: 120,
      numeric: true,
      wide: true,
      render: ({ checks }) => (checks === undefined ? '—' : <Num value={checks} />),
    },
    {
      key: 'now',
      header: 'Denied a minute',
      width: 136,
      numeric: true,
      render: ({ now, trend }) => (
        <>
          <Num value={now} /> <span aria-hidden>{trends[trend]}</span>
          {trend !== 'steady' && <span className="aside">{trendWords[trend]}</span>}
        </>
      ),
    },
    countColumn('denied', 'Denied', 88, ({ denied }) => denied, { wide: true }),
    actsColumn('max(104px, 10vw)', (row) => <Act tenant={tenant} row={row} onBlock={onBlock} />, { wraps: true }),
  ];
}

function Act({ tenant, row, onBlock }: { tenant: string; row: Limited; onBlock: AttackProps['onBlock'] }) {
  const block = useBlock(tenant, row.group);
  if (block) return <Blocked tenant={tenant} group={row.group} />;
  return (
    onBlock && (
      <Button
        size="xs"
        variant="default"
        aria-label={`Block ${groupNouns[row.group.by]} ${row.group.value}`}
        onClick={() => onBlock(row)}
      >
        Block …
      </Button>
    )
  );
}

function Who({ tenant, span, group }: { tenant: string; span: Span; group: Group }) {
  return group.by === 'user' ? (
    <Link to="/t/$tenant/users/$user" params={{ tenant, user: group.value }}>
      {group.value}
    </Link>
  ) : (
    <Link to="/t/$tenant/violations" params={{ tenant }} search={{ ...groupFilter(group), range: span.text }}>
      {group.value}
    </Link>
  );
}
