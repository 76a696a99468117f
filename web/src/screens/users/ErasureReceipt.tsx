import { Button, Group } from '@mantine/core';
import { queryOptions, useQuery, useQueryClient } from '@tanstack/react-query';
import { useEffect } from 'react';
import { changed } from '~/api/changes';
import { api } from '~/api/client';
import { nextLook, tenantKey } from '~/api/queries';
import type { Erasure } from '~/api/types';
import { Dialog } from '~/components/Dialog';
import { Query } from '~/components/Query';
import { RelativeTime } from '~/components/Time';
import { Work } from '~/components/Work';
import styles from './Users.module.css';
import { usageQuery } from './usage';

const erasureQuery = (tenant: string, receipt: string) =>
  queryOptions({
    queryKey: tenantKey(tenant, 'erasures', receipt),
    queryFn: ({ signal }) =>
      api.get('/api/v1/tenants/{tenant}/erasures/{receipt_id}', { tenant, receipt_id: receipt, signal }),
    refetchInterval: ({ state }) => nextLook(state),
  });

const steps: Record<Erasure['steps'][number]['name'], string> = {
  assignments: 'Plan assignments',
  overrides: 'Overrides',
  violations: 'Violations',
  crossings: 'Crossings of quotas',
  months: 'Counts per month',
  counts: 'Counts per minute',
  deliveries: 'Messages of alerts',
  traffic_blocks: 'Recorded checks',
  replays: 'Replays',
  audit_entries: 'Audit entries',
  exports: 'Files of exports',
  buckets: 'Buckets filled',
};

interface Props {
  tenant: string;
  user: string;
  receipt: string;
  onClose: () => void;
}

export function ErasureReceipt({ tenant, user, receipt, onClose }: Props) {
  const erasure = useQuery(erasureQuery(tenant, receipt));
  const queries = useQueryClient();
  const isFinished = !!erasure.data?.finished_at;
  useEffect(() => {
    if (!isFinished) return;
    changed(queries, tenant, 'user', 'override', 'bucket');
    queries.invalidateQueries(usageQuery(tenant, user));
  }, [isFinished, queries, tenant, user]);

  return (
    <Dialog onClose={onClose} title={isFinished ? 'User erased' : 'Erasing user'} keepOpen>
      <Query query={erasure}>{(data) => <Receipt erasure={data} />}</Query>
      <Group justify="flex-end">
        <Button onClick={onClose}>Close</Button>
      </Group>
    </Dialog>
  );
}

function Receipt({ erasure }: { erasure: Erasure }) {
  const { receipt_id, finished_at, steps: all, rules } = erasure;
  const done = all.filter((step) => step.finished_at).length;
  return (
    <div className={styles.form}>
      <p>
        Receipt <code>{receipt_id}</code>
        {finished_at ? (
          <>
            , finished <RelativeTime at={finished_at} />. The audit log has it too.
          </>
        ) : (
          '. It goes on when this page is closed.'
        )}
      </p>
      <Work work={erasure} label="Steps done" done={done} of={all.length} />
      <dl className={styles.receipt}>
        {all.map((step) => (
          <div key={step.name}>
            <dt>{steps[step.name]}</dt>
            <dd>{step.finished_at || step.rows > 0 ? step.rows.toLocaleString('en') : '…'}</dd>
          </div>
        ))}
      </dl>
      {rules.length > 0 && (
        <p>
          Kept, because {rules.length === 1 ? 'its pattern names' : 'their patterns name'} this user:{' '}
          {rules.length === 1 ? 'rule' : 'rules'} {rules.join(', ')}.
        </p>
      )}
    </div>
  );
}
