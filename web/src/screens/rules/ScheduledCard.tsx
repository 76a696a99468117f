import { Button } from '@mantine/core';
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { changed } from '~/api/changes';
import { api, body } from '~/api/client';
import type { Rule } from '~/api/types';
import { ConfirmAction } from '~/components/ConfirmAction';
import { Card } from '~/components/Page';
import { Awaited } from '~/components/states';
import { done } from '~/components/toast';
import { isOpen, type ScheduledChange, scheduledQuery, whenWords } from '~/features/scheduled/scheduled';
import { useRole } from '~/session';
import styles from './Rules.module.css';
import { changeWords, stateWords } from './scheduled';

/** The scheduled changes of a rule; nothing if it never had one. */
export function ScheduledCard({ tenant, rule }: { tenant: string; rule: Rule }) {
  const { edit } = useRole();
  const queries = useQueryClient();
  const { data: all = [], isPending } = useQuery(scheduledQuery(tenant, rule.rule_id));
  const [asked, setAsked] = useState<ScheduledChange | null>(null);
  if (isPending) return <Awaited />;
  if (all.length === 0) return null;

  async function cancel() {
    if (!asked) return;
    const after = await body(
      api.POST('/api/v1/tenants/{tenant}/scheduled-changes/{change_id}/cancel', {
        params: { path: { tenant, change_id: asked.change_id } },
      }),
    );
    await changed(queries, tenant, 'scheduled_change', 'rule');
    done(
      after.state === 'canceled'
        ? 'Scheduled change canceled'
        : (after.failure ?? 'Taken back. It takes effect within 2 s'),
    );
  }

  const inForce = asked?.state === 'in_force';
  return (
    <Card title="Scheduled changes" flush>
      <ul className={`${styles.history} ${styles.scheduled}`} aria-label="Scheduled changes">
        {all.map((one) => (
          <li key={one.change_id}>
            <div>
              <span className={isOpen(one) ? undefined : 'soft'}>{stateWords[one.state]}</span>
              <div className={styles.changes}>
                {changeWords(rule, one).map(({ label, to }) => (
                  <span key={label}>
                    {label}: <strong>{to}</strong>
                  </span>
                ))}
              </div>
              <div className={styles.who}>
                {whenWords(one)}, by {one.requested_by}
              </div>
              {one.failure && <div className={styles.warning}>{one.failure}</div>}
            </div>
            {edit && isOpen(one) && (
              <Button variant="default" size="compact-sm" onClick={() => setAsked(one)}>
                {one.state === 'in_force' ? 'End now' : 'Cancel'}
              </Button>
            )}
          </li>
        ))}
      </ul>
      <ConfirmAction
        opened={asked !== null}
        onClose={() => setAsked(null)}
        title={inForce ? 'End this change now?' : 'Cancel this scheduled change?'}
        effect={
          inForce
            ? 'Within 2 s the rule has what it had before the change, unless somebody edited it meanwhile.'
            : 'It will not be made. The rule stays as it is.'
        }
        verb={inForce ? 'End now' : 'Cancel change'}
        destructive
        action={cancel}
      />
    </Card>
  );
}
