import { Button } from '@mantine/core';
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { changed } from '~/api/changes';
import { api } from '~/api/client';
import type { AuditEntry } from '~/api/types';
import { ConfirmAction } from '~/components/ConfirmAction';
import { Query } from '~/components/Query';
import { RelativeTime } from '~/components/Time';
import { done } from '~/components/toast';
import { ruleOfImage } from '~/domain/algorithm';
import { isAsLeft, isPromotion, isUndo } from '~/domain/audit';
import { ruleEffect } from '~/domain/rule';
import { useRole } from '~/session';
import styles from './Rules.module.css';
import { differences } from './ruleDraft';
import { ruleHistoryQuery } from './ruleHistory';

/** The rule’s history. A change can be undone while nothing changed after it. */
export function History({ tenant, ruleId }: { tenant: string; ruleId: number }) {
  const { edit } = useRole();
  const queries = useQueryClient();
  const [undoing, setUndoing] = useState<AuditEntry | null>(null);
  const history = useQuery(ruleHistoryQuery(tenant, ruleId));

  async function undo(entry: AuditEntry) {
    await api.POST('/api/v1/tenants/{tenant}/audit/{audit_id}/revert', {
      params: { path: { tenant, audit_id: entry.audit_id } },
    });
    await changed(queries, tenant, 'rule');
    done('Change undone. It takes effect within 2 s');
  }

  return (
    <Query query={history}>
      {({ items }) => (
        <>
          <ol className={styles.history}>
            {items.map((entry) => (
              <li key={entry.audit_id}>
                <RelativeTime at={entry.at} />
                <div className={styles.changes}>
                  {(isUndo(entry) || isPromotion(entry)) && (
                    <span className="soft">{isUndo(entry) ? 'Undo' : 'Enforced from a shadow rule'}</span>
                  )}
                  <Change entry={entry} />
                  <span className={styles.who}>
                    {entry.actor.name}
                    {entry.actor.kind === 'api_key' && ' (API key)'}
                  </span>
                </div>
                {edit && entry.action === 'update' && isAsLeft(entry, items[0] as AuditEntry) && (
                  <Button variant="default" size="compact-sm" onClick={() => setUndoing(entry)}>
                    {isUndo(entry) ? 'Redo' : 'Undo'}
                  </Button>
                )}
              </li>
            ))}
          </ol>
          <ConfirmAction
            opened={undoing !== null}
            onClose={() => setUndoing(null)}
            title={undoing && isUndo(undoing) ? 'Redo this change?' : 'Undo this change?'}
            effect={
              <>
                The rule returns to its previous values
                {undoing && isPromotion(undoing) && ', and the shadow rule is restored'}. You can undo this too.
              </>
            }
            verb={undoing && isUndo(undoing) ? 'Redo' : 'Undo'}
            action={async () => undoing && undo(undoing)}
          />
        </>
      )}
    </Query>
  );
}

function Change({ entry: { action, before, after } }: { entry: AuditEntry }) {
  const [old, now] = [before && ruleOfImage(before), after && ruleOfImage(after)];
  if (action === 'create' && now)
    return (
      <span>
        Created{now.mode === 'shadow' && ' in shadow mode'}: {ruleEffect(now)}
      </span>
    );
  if (action === 'remove') return <span>Removed</span>;
  if (!old || !now) return <span>Changed</span>;
  return differences(old, now).map(({ label, from, to }) => (
    <span key={label}>
      {label}: <s>{from}</s> {to}
    </span>
  ));
}
