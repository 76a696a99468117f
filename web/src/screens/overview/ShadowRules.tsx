import { Link } from '@tanstack/react-router';
import type { ShadowRule } from '~/api/types';
import { type Column, DataTable } from '~/components/DataTable';
import { Num } from '~/components/Num';
import { Outcome } from '~/components/Outcome';
import { Card } from '~/components/Page';
import { percent } from '~/domain/format';
import styles from './Overview.module.css';

/** What rules in shadow mode would have done: the reason to make one bite, or not. */
export function ShadowRules({ tenant, rules }: { tenant: string; rules: ShadowRule[] }) {
  const columns: Column<ShadowRule>[] = [
    {
      key: 'rule',
      header: 'Rule',
      render: ({ rule }) => (
        <Link to="/t/$tenant/rules/$rule" params={{ tenant, rule: String(rule.rule_id) }}>
          <code>{rule.key_pattern}</code> <span className="soft">{rule.name}</span>
        </Link>
      ),
    },
    { key: 'plan', header: 'Plan', width: 136, wide: true, render: ({ rule }) => rule.plan ?? 'all plans' },
    {
      key: 'checks',
      header: 'Checks it matched',
      width: 144,
      numeric: true,
      wide: true,
      render: ({ checks }) => <Num value={checks} />,
    },
    {
      key: 'denied',
      header: 'Would deny',
      width: 104,
      numeric: true,
      render: ({ denied }) => <Num value={denied} />,
    },
    {
      key: 'share',
      header: 'Share',
      width: 88,
      numeric: true,
      render: ({ checks, denied }) => (checks === 0 ? '–' : percent(denied / checks)),
    },
  ];
  return (
    <Card
      title="Rules in shadow mode"
      lead="They count and report, and deny nobody."
      actions={rules.length > 0 && <Outcome tone="shadow">Shadow</Outcome>}
      flush
    >
      {rules.length === 0 ? (
        <p className={styles.none}>
          None. A limit can run in shadow mode first: here it would say whom it denies, before it does.{' '}
          <Link to="/t/$tenant/rules" params={{ tenant }}>
            Rules
          </Link>
        </p>
      ) : (
        <DataTable
          label="Rules in shadow mode"
          columns={columns}
          rows={rules}
          rowKey={({ rule }) => rule.rule_id}
        />
      )}
    </Card>
  );
}
