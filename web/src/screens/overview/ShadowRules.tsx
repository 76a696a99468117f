import { Link } from '@tanstack/react-router';
import type { ShadowRule } from '~/api/types';
import { type Column, DataTable } from '~/components/DataTable';
import { Num } from '~/components/Num';
import { Outcome } from '~/components/Outcome';
import { Card } from '~/components/Page';
import { RuleLink } from '~/components/RuleLink';
import { percent } from '~/domain/format';
import styles from './Overview.module.css';

/** What rules in shadow mode would have denied. */
export default function ShadowRules({ tenant, rules }: { tenant: string; rules: ShadowRule[] }) {
  const columns: Column<ShadowRule>[] = [
    {
      key: 'rule',
      header: 'Rule',
      render: ({ rule }) => <RuleLink tenant={tenant} id={rule.rule_id} rule={rule} />,
    },
    {
      key: 'checks',
      header: 'Matched checks',
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
      lead="They report what they would deny, and deny nothing."
      actions={rules.length > 0 && <Outcome tone="shadow">Shadow</Outcome>}
      flush
    >
      {rules.length === 0 ? (
        <p className={styles.none}>
          No rules in shadow mode. Try a new limit in shadow mode first, and see here what it would deny.{' '}
          <Link to="/t/$tenant/rules" params={{ tenant }}>
            Rules
          </Link>
        </p>
      ) : (
        <DataTable label="Rules in shadow mode" columns={columns} rows={rules} rowKey={({ rule }) => rule.rule_id} />
      )}
    </Card>
  );
}
