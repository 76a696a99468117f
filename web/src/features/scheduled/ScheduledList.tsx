import { Button, Group } from '@mantine/core';
import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { changed } from '~/api/changes';
import { api } from '~/api/client';
import type { Rule, ScheduledChange } from '~/api/types';
import { ConfirmAction } from '~/components/ConfirmAction';
import { done } from '~/components/toast';
import { plural } from '~/domain/format';
import { isOpen, stateWords, whenWords } from '~/domain/scheduled';
import { useRole } from '~/session';
import { EditScheduled } from './EditScheduled';
import styles from './scheduled.module.css';

interface Props {
  tenant: string;
  changes: ScheduledChange[];
  /** A change of rules that are not among these cannot be edited. */
  rules: Map<string, Rule>;
  what: (change: ScheduledChange) => React.ReactNode;
}

export function ScheduledList({ tenant, changes, rules, what }: Props) {
  const { edit } = useRole();
  const queries = useQueryClient();
  const [asked, setAsked] = useState<ScheduledChange | null>(null);
  const [edited, setEdited] = useState<ScheduledChange | null>(null);

  async function cancel() {
    if (!asked) return;
    const after = await api.post('/api/v1/tenants/{tenant}/scheduled-changes/{change_id}/cancel', {
      tenant,
      change_id: asked.change_id,
    });
    await changed(queries, tenant, 'scheduled_change', 'rule');
    done(
      after.state === 'canceled'
        ? 'Scheduled change canceled'
        : (after.failure ?? 'Taken back. It takes effect within 2 s'),
    );
  }

  const inForce = asked?.state === 'in_force';
  const many = asked && asked.rules.length > 1 ? plural(asked.rules.length, 'rule') : null;
  return (
    <>
      <ul className={styles.list} aria-label="Scheduled changes">
        {changes.map((one) => (
          <li key={one.change_id}>
            <div className={styles.what}>
              <span className={isOpen(one) ? undefined : 'soft'}>{stateWords(one)}</span>
              {what(one)}
              <div className={styles.who}>
                {whenWords(one)}, by {one.requested_by}
              </div>
              {one.failure && <div className={styles.warning}>{one.failure}</div>}
            </div>
            {edit && isOpen(one) && (
              <Group gap={8}>
                {one.state === 'waiting' && one.rules.every(({ rule_id }) => rules.has(rule_id)) && (
                  <Button variant="default" size="compact-sm" onClick={() => setEdited(one)}>
                    Edit
                  </Button>
                )}
                <Button variant="default" size="compact-sm" onClick={() => setAsked(one)}>
                  {one.state === 'in_force' ? 'End now' : 'Cancel'}
                </Button>
              </Group>
            )}
          </li>
        ))}
      </ul>
      {edited && (
        <EditScheduled
          key={edited.change_id}
          tenant={tenant}
          change={edited}
          rules={edited.rules.flatMap(({ rule_id }) => rules.get(rule_id) ?? [])}
          onClose={() => setEdited(null)}
        />
      )}
      <ConfirmAction
        opened={asked !== null}
        onClose={() => setAsked(null)}
        title={inForce ? 'End this change now?' : 'Cancel this scheduled change?'}
        effect={
          inForce
            ? `Within 2 s ${many ? `these ${many}` : 'the rule'} return to the limit before, unless edited meanwhile.`
            : `It will not be made. ${many ? `All ${many} stay as they are.` : 'The rule stays as it is.'}`
        }
        verb={inForce ? 'End now' : 'Cancel change'}
        destructive
        action={cancel}
      />
    </>
  );
}
