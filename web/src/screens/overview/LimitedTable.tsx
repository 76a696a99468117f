import { Button } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { lazy, Suspense, useState } from 'react';
import { presentQuery } from '~/api/traffic';
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
import { type Answer, atPresent, type Limited, limitedQuery, standsOut } from './limited';
import styles from './Overview.module.css';

// Most visits block nobody.
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
  const answer = limited.data && atPresent(limited.data, { user, network });
  const [blocking, setBlocking] = useState<Limited | null>(null);
  const { edit } = useRole();
  const block = edit ? setBlocking : undefined;
  return (
    <>
      {answer && <Attack tenant={tenant} answer={answer} onBlock={block} />}
      <Card
        title="Who is limited"
        actions={
          <Link to="/t/$tenant/violations" params={{ tenant }} search={{ group: 'user', range: span.text }}>
            All denials
          </Link>
        }
        flush
      >
        <Query query={limited} loading={<LoadingLines lines={6} />}>
          {({ isPart }) =>
            !answer || answer.rows.length === 0 ? (
              <p className={styles.none}>Nobody was denied.</p>
            ) : (
              <div className={limited.isPlaceholderData ? styles.old : undefined}>
                <DataTable
                  label="Who is limited"
                  columns={columnsOf(tenant, span, block)}
                  rows={answer.rows}
                  rowKey={({ group: { by, value } }) => `${by} ${value}`}
                />
                {isPart && (
                  <p className={styles.part}>Denied: of recorded denials. Those of the last ten minutes are exact.</p>
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
            denied={blocking.denied}
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
  onBlock: ((row: Limited) => void) | undefined;
}

function Attack({ tenant, answer, onBlock }: AttackProps) {
  const source = standsOut(answer);
  if (!source) return null;
  const { group, now, endpoint } = source;
  return (
    <div role="status" className={styles.attack}>
      <p>
        <strong>
          {group.by === 'user' ? 'User' : 'Network'} {group.value}
        </strong>{' '}
        makes {percent(Math.min(1, now / answer.now))} of all denials: {shortNumber(now)} a minute
        {endpoint && `, most recorded ones on ${endpoint}`}.
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
        rule && (
          <Link to="/t/$tenant/rules/$rule" params={{ tenant, rule: String(rule.rule_id) }} title={rule.key_pattern}>
            {ruleTitle({ name: '', ...rule })}
          </Link>
        ),
    },
    { key: 'where', header: 'Where', wide: true, render: ({ endpoint }) => endpoint },
    {
      key: 'now',
      header: 'Per minute now',
      width: 136,
      numeric: true,
      render: ({ now, trend }) => (
        <>
          <Num value={now} /> <span aria-hidden>{trends[trend]}</span>
          {trend !== 'steady' && <span className="aside">{trendWords[trend]}</span>}
        </>
      ),
    },
    {
      key: 'denied',
      header: 'Denied',
      width: 88,
      numeric: true,
      wide: true,
      render: ({ denied }) => <Num value={denied} />,
    },
    {
      key: 'act',
      header: 'Action',
      quiet: true,
      width: 'max(104px, 16vw)',
      wraps: true,
      render: (row) => <Act tenant={tenant} row={row} onBlock={onBlock} />,
    },
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
