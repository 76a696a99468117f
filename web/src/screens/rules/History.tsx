import { Button } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import type { AuditEntry } from '~/api/types';
import { Query } from '~/components/Query';
import { RelativeTime } from '~/components/Time';
import UndoChange from '~/components/UndoChange';
import { ruleOfImage } from '~/domain/algorithm';
import { isAsLeft, isPromotion, isUndo } from '~/domain/audit';
import { ruleEffect } from '~/domain/rule';
import { useRole } from '~/session';
import styles from './Rules.module.css';
import { differences } from './ruleDraft';
import { ruleHistoryQuery } from './ruleHistory';

export function History({ tenant, ruleId }: { tenant: string; ruleId: string }) {
  const { edit } = useRole();
  const [undoing, setUndoing] = useState<AuditEntry | null>(null);
  const history = useQuery(ruleHistoryQuery(tenant, ruleId));

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
          {undoing && (
            <UndoChange tenant={tenant} of={{ change_id: undoing.change_id }} onClose={() => setUndoing(null)} />
          )}
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
