import type { ShadowRule } from '~/api/types';
import { countColumn } from '~/components/columns';
import { type Column, DataTable } from '~/components/DataTable';
import { Card } from '~/components/Page';
import { RuleLink } from '~/components/RuleLink';
import { percent } from '~/domain/format';

export default function ShadowRules({ tenant, rules }: { tenant: string; rules: ShadowRule[] }) {
  const columns: Column<ShadowRule>[] = [
    { key: 'rule', header: 'Rule', render: ({ rule }) => <RuleLink tenant={tenant} id={rule.rule_id} rule={rule} /> },
    countColumn('checks', 'Matched checks', 144, ({ checks }) => checks, { wide: true }),
    countColumn('denied', 'Would deny', 104, ({ denied }) => denied),
    {
      key: 'share',
      header: 'Share',
      width: 88,
      numeric: true,
      render: ({ checks, denied }) => (checks === 0 ? '–' : percent(denied / checks)),
    },
  ];
  return (
    <Card title="Rules in shadow mode" flush>
      <DataTable label="Rules in shadow mode" columns={columns} rows={rules} rowKey={({ rule }) => rule.rule_id} />
    </Card>
  );
}
