import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { openScheduledQuery, scheduledQuery } from '~/api/scheduled';
import type { MatrixRow, Rule, ScheduledChange } from '~/api/types';
import { FormerRuleLink } from '~/components/FormerRuleLink';
import { Card } from '~/components/Page';
import { plural } from '~/domain/format';
import { becomes, isOpen } from '~/domain/scheduled';
import { ScheduledList } from '~/features/scheduled/ScheduledList';
import styles from '~/features/scheduled/scheduled.module.css';

const mostEnded = 5;

/** The scheduled changes of all rules: those to come, and the latest that are over. */
export function ScheduledChanges({ tenant, rows }: { tenant: string; rows: MatrixRow[] }) {
  const { data: open = [] } = useQuery(openScheduledQuery(tenant));
  const { data: latest = [] } = useQuery(scheduledQuery(tenant));
  const all = [...open, ...latest.filter((change) => !isOpen(change)).slice(0, mostEnded)];
  if (all.length === 0) return null;
  const rules = new Map(rows.flatMap((row) => row.rules.map((rule) => [rule.rule_id, rule])));
  return (
    <Card title="Scheduled changes" flush>
      <ScheduledList
        tenant={tenant}
        changes={all}
        rules={rules}
        what={(change) => <What tenant={tenant} change={change} rules={rules} />}
      />
    </Card>
  );
}

function What({ tenant, change, rules }: { tenant: string; change: ScheduledChange; rules: Map<string, Rule> }) {
  const [open, setOpen] = useState(false);
  const list = (
    <ul className={styles.rules}>
      {change.rules.map(({ rule_id, change: patch, failure }) => {
        const rule = rules.get(rule_id) ?? null;
        return (
          <li key={rule_id}>
            <FormerRuleLink tenant={tenant} id={rule_id} rule={rule} />
            {rule && (
              <>
                {': '}
                <strong>{becomes(rule, patch)}</strong>
              </>
            )}
            {failure && <div className={styles.warning}>{failure}</div>}
          </li>
        );
      })}
    </ul>
  );
  if (change.rules.length === 1) return list;
  return (
    <>
      <strong>{change.title}</strong>
      <details onToggle={(event) => setOpen(event.currentTarget.open)}>
        <summary>Show {plural(change.rules.length, 'rule')}</summary>
        {open && list}
      </details>
    </>
  );
}
