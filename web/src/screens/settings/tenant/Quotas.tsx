import { Button } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { lazy, Suspense, useState } from 'react';
import { quotasQuery } from '~/api/queries';
import type { Quota } from '~/api/types';
import { Card } from '~/components/Page';
import { Query } from '~/components/Query';
import { exactNumber, percent } from '~/domain/format';
import { isFull, quotaWords, usedShare, usedText } from '~/domain/quota';
import styles from '../Settings.module.css';
import own from './Quotas.module.css';

const QuotasForm = lazy(() => import('./QuotasForm'));

export function QuotasCard({ tenant, editable }: { tenant: string; editable: boolean }) {
  const quotas = useQuery(quotasQuery(tenant));
  const [editing, setEditing] = useState(false);
  return (
    <Card
      title="Capacity"
      lead={
        editable
          ? 'How much this tenant may hold. More is refused; what is there stays.'
          : 'How much this tenant may hold. A platform admin can change it.'
      }
      actions={
        editable &&
        quotas.data && (
          <Button variant="default" onClick={() => setEditing(true)}>
            Edit capacity
          </Button>
        )
      }
    >
      <Query query={quotas}>
        {(saved) => (
          <>
            <dl className={own.list}>
              {saved.value.items.map((quota) => (
                <Line key={quota.thing} quota={quota} />
              ))}
            </dl>
            {editing && (
              <Suspense>
                <QuotasForm tenant={tenant} saved={saved} onClose={() => setEditing(false)} />
              </Suspense>
            )}
          </>
        )}
      </Query>
    </Card>
  );
}

function Line({ quota }: { quota: Quota }) {
  const share = usedShare(quota);
  const full = isFull(quota);
  return (
    <div className={own.line}>
      <dt>{quotaWords[quota.thing].label}</dt>
      <dd>
        {usedText(quota)}
        {full && <strong> · full</strong>}
        {!quota.is_default && <span className={styles.dim}> · default {exactNumber(quota.default)}</span>}
      </dd>
      <dd className={own.bar} data-full={full || undefined}>
        <div role="img" aria-label={`${percent(share)} used`} style={{ width: `${share * 100}%` }} />
      </dd>
    </div>
  );
}
