import { Button } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { lazy, Suspense, useState } from 'react';
import { capacityQuery } from '~/api/queries';
import type { ThingCapacity } from '~/api/types';
import { Card } from '~/components/Page';
import { Query } from '~/components/Query';
import { capacityWords, isFull, usedShare, usedText } from '~/domain/capacity';
import { exactNumber, percent } from '~/domain/format';
import styles from '../Settings.module.css';
import own from './Capacity.module.css';

const CapacityForm = lazy(() => import('./CapacityForm'));

export function CapacityCard({ tenant, editable }: { tenant: string; editable: boolean }) {
  const capacity = useQuery(capacityQuery(tenant));
  const [editing, setEditing] = useState(false);
  return (
    <Card
      title="Capacity"
      lead={!editable && 'A platform admin can change it.'}
      actions={
        editable &&
        capacity.data && (
          <Button variant="default" onClick={() => setEditing(true)}>
            Edit capacity
          </Button>
        )
      }
    >
      <Query query={capacity}>
        {(saved) => (
          <>
            <dl className={own.list}>
              {saved.value.items.map((one) => (
                <Line key={one.thing} capacity={one} />
              ))}
            </dl>
            {editing && (
              <Suspense>
                <CapacityForm tenant={tenant} saved={saved} onClose={() => setEditing(false)} />
              </Suspense>
            )}
          </>
        )}
      </Query>
    </Card>
  );
}

function Line({ capacity }: { capacity: ThingCapacity }) {
  const share = usedShare(capacity);
  const full = isFull(capacity);
  return (
    <div className={own.line}>
      <dt>{capacityWords[capacity.thing].label}</dt>
      <dd>
        {usedText(capacity)}
        {full && <strong> · full</strong>}
        {!capacity.is_default && <span className={styles.dim}> · default {exactNumber(capacity.default)}</span>}
      </dd>
      <dd className={own.bar} data-full={full || undefined}>
        <div role="img" aria-label={`${percent(share)} used`} style={{ width: `${share * 100}%` }} />
      </dd>
    </div>
  );
}
