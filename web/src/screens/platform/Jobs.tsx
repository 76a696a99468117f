import { Button, Group } from '@mantine/core';
import { useInfiniteQuery, useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { api } from '~/api/client';
import { pagesQuery, rowsOf } from '~/api/pages';
import type { ParkedJob, PeriodicJob } from '~/api/types';
import { ConfirmAction } from '~/components/ConfirmAction';
import { actsColumn, countColumn, timeColumn } from '~/components/columns';
import { type Column, DataTable } from '~/components/DataTable';
import { ListTable } from '~/components/ListTable';
import { Outcome } from '~/components/Outcome';
import { Card, Page } from '~/components/Page';
import { Query } from '~/components/Query';
import { Duration, RelativeTime } from '~/components/Time';
import { done, failed } from '~/components/toast';

const refetchInterval = 10_000;
const parkedKey = ['parked jobs'] as const;

export default function Jobs() {
  return (
    <Page title="Jobs">
      <Parked />
      <Periodic />
    </Page>
  );
}

function named({ kind, about }: ParkedJob): string {
  return about ? `${kind} ${about}` : kind;
}

function Parked() {
  const queries = useQueryClient();
  const [removing, setRemoving] = useState<ParkedJob | null>(null);
  const parked = useInfiniteQuery({
    ...pagesQuery(parkedKey, (cursor, signal) => api.get('/api/v1/parked-jobs', { limit: 50, cursor, signal })),
    select: rowsOf<ParkedJob>,
    refetchInterval,
  });
  const refetch = () => queries.invalidateQueries({ queryKey: parkedKey });
  const retry = useMutation({
    mutationFn: ({ job_id }: ParkedJob) => api.post('/api/v1/parked-jobs/{job_id}/retry', { job_id }),
    onSuccess: () => done('The job is due now'),
    onError: (error) => failed('Could not retry the job', error),
    onSettled: refetch,
  });

  async function remove() {
    if (!removing) return;
    await api.delete('/api/v1/parked-jobs/{job_id}', { job_id: removing.job_id });
    await refetch();
    done('Job removed');
  }

  const columns: Column<ParkedJob>[] = [
    { key: 'kind', header: 'Job', render: (job) => <strong>{named(job)}</strong> },
    { key: 'tenant', header: 'Tenant', width: 130, wide: true, render: ({ tenant }) => tenant ?? 'platform' },
    { key: 'error', header: 'Error', wraps: true, render: ({ error }) => error },
    countColumn('attempts', 'Attempts', 90, ({ attempts }) => attempts, { wide: true }),
    timeColumn('last', 'Last run', ({ last_run_at }) => last_run_at),
    actsColumn(190, (job) => (
      <Group gap={8} wrap="nowrap" justify="flex-end">
        <Button
          size="compact-sm"
          variant="default"
          loading={retry.isPending && retry.variables.job_id === job.job_id}
          onClick={() => retry.mutate(job)}
        >
          Try again
        </Button>
        <Button size="compact-sm" variant="default" onClick={() => setRemoving(job)}>
          Remove …
        </Button>
      </Group>
    )),
  ];
  const rows = parked.data ?? [];
  return (
    <Card flush={rows.length > 0} title="Parked jobs">
      <ListTable
        list={parked}
        noun="job"
        label="Parked jobs"
        columns={columns}
        rowKey={({ job_id }) => job_id}
        none={<p className="soft">No job is parked.</p>}
      />
      <ConfirmAction
        opened={removing !== null}
        onClose={() => setRemoving(null)}
        title="Remove this job?"
        effect={removing && `${named(removing)} is not done, and this cannot be undone.`}
        verb="Remove job"
        destructive
        gone={removing !== null && parked.isSuccess && !rows.some(({ job_id }) => job_id === removing.job_id)}
        action={remove}
      />
    </Card>
  );
}

const periodicColumns: Column<PeriodicJob>[] = [
  { key: 'kind', header: 'Job', render: ({ kind }) => <strong>{kind}</strong> },
  {
    key: 'state',
    header: 'State',
    wraps: true,
    render: ({ running, error }) =>
      error ? (
        <>
          <Outcome tone="denied">Failed</Outcome> {error}
        </>
      ) : (
        <Outcome tone="allowed">{running ? 'Runs now' : 'Works'}</Outcome>
      ),
  },
  {
    key: 'last',
    header: 'Last run',
    width: 120,
    render: ({ last_run_at }) => (last_run_at ? <RelativeTime at={last_run_at} /> : 'never'),
  },
  {
    key: 'took',
    header: 'Took',
    width: 90,
    numeric: true,
    wide: true,
    render: ({ took_ms, last_run_at }) => last_run_at && <Duration ms={took_ms} />,
  },
  {
    key: 'next',
    header: 'Next run',
    width: 120,
    wide: true,
    render: ({ next_run_at }) => (next_run_at ? <RelativeTime at={next_run_at} /> : 'now'),
  },
  {
    key: 'lag',
    header: 'Lag',
    width: 90,
    numeric: true,
    wide: true,
    render: ({ lag_ms }) => <Duration ms={lag_ms} />,
  },
];

function Periodic() {
  const periodic = useQuery({
    queryKey: ['periodic jobs'],
    queryFn: async ({ signal }) => (await api.get('/api/v1/periodic-jobs', { signal })).items,
    refetchInterval,
  });
  return (
    <Card flush title="Periodic jobs">
      <Query query={periodic}>
        {(rows) => (
          <DataTable label="Periodic jobs" columns={periodicColumns} rows={rows} rowKey={({ kind }) => kind} />
        )}
      </Query>
    </Card>
  );
}
