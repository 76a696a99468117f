import { Button, Group } from '@mantine/core';
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { useEffect, useState } from 'react';
import { changed } from '~/api/changes';
import { api, body } from '~/api/client';
import { isStatus, ProblemError } from '~/api/problem';
import type { MatrixRow, Plan, ScheduledChange } from '~/api/types';
import { Dialog } from '~/components/Dialog';
import { Effect } from '~/components/Effect';
import { IconAlert } from '~/components/icons';
import { ErrorState, LoadingLines } from '~/components/states';
import { done } from '~/components/toast';
import { plural } from '~/domain/format';
import { patternInWords } from '~/domain/pattern';
import { StartReplay } from '~/features/replay/StartReplay';
import { ScheduleDialog } from '~/features/scheduled/ScheduleDialog';
import { Changes, candidateOf } from './Changes';
import { cellsOf, type Draft, errorsByCell, scheduleProblem, toSchedule } from './draft';
import { type HeldRow, heldSentence, splitProblem } from './inForce';
import styles from './Matrix.module.css';

interface Props {
  tenant: string;
  draft: Draft;
  /** Rows where the limit for all plans is lower than a limit in the draft. */
  held: HeldRow[];
  rows: MatrixRow[];
  plans: Plan[];
  /** The next scheduled change of each rule that has one, by rule id. */
  scheduled: Map<number, ScheduledChange>;
  onSplit: (row: MatrixRow) => void;
  /** Opens the schedule at once, if all changes can be scheduled. */
  schedule: boolean;
  onClose: () => void;
  onSaved: () => void;
  /** Called with an error for each cell that cannot be saved. */
  onErrors: (errors: Map<string, string>) => void;
  onRaceLost: () => void;
}

/** The changes as a dry run of the server, before they are saved. */
export function Review(props: Props) {
  const {
    tenant,
    draft,
    held,
    rows,
    plans,
    scheduled,
    schedule,
    onSplit,
    onClose,
    onSaved,
    onErrors,
    onRaceLost,
  } = props;
  const queries = useQueryClient();
  const ask = (dryRun: boolean, signal?: AbortSignal) =>
    body(
      api.POST('/api/v1/tenants/{tenant}/matrix', {
        params: { path: { tenant } },
        body: { dry_run: dryRun, cells: cellsOf(draft) },
        signal,
      }),
    );
  const preview = useQuery({
    // Not a key of the tenant: a save would refetch it and show no changes.
    queryKey: ['preview', tenant, cellsOf(draft)],
    queryFn: ({ signal }) => ask(true, signal),
    gcTime: 0,
    staleTime: 0,
  });
  const save = useMutation({
    mutationFn: () => ask(false),
    onSuccess: async (diff) => {
      await changed(queries, tenant, 'rule');
      done(`${plural(diff.changes.length, 'change')} saved. All checks follow within 2 s`);
      onSaved();
    },
  });

  const question = preview.data ? candidateOf(preview.data) : null;
  const [replaying, setReplaying] = useState(false);
  const changes = { tenant, draft, rows, plans, scheduled };
  const unscheduled = scheduleProblem(draft);
  const [scheduling, setScheduling] = useState(schedule && !unscheduled);

  function retry() {
    save.reset();
    preview.refetch();
  }

  const error = save.error ?? preview.error;
  // biome-ignore lint/correctness/useExhaustiveDependencies: an error is handled once, when it comes
  useEffect(() => {
    if (isStatus(error, 412)) onRaceLost();
    else if (error instanceof ProblemError && error.document.errors)
      onErrors(errorsByCell(draft, error.document));
  }, [error]);

  return (
    <Dialog
      onClose={onClose}
      size={560}
      title={`Save ${plural(draft.size, 'change')}?`}
      pending={save.isPending}
    >
      {held.map((one) => (
        <Held
          key={`${one.row.key_pattern} ${one.row.name}`}
          held={one}
          problem={splitProblem(one.row, plans)}
          onSplit={() => onSplit(one.row)}
        />
      ))}
      {error && <ErrorState error={error} onRetry={retry} />}
      {!error && preview.data && <Changes {...changes} diff={preview.data} />}
      {!error && question && (
        <>
          <Effect tenant={tenant} question={question} />
          <Button variant="default" size="compact-sm" mt="xs" onClick={() => setReplaying(true)}>
            Replay a longer time
          </Button>
        </>
      )}
      {replaying && question && (
        <StartReplay
          tenant={tenant}
          candidate={question}
          title={`${plural(draft.size, 'change')} of plans`}
          onClose={() => setReplaying(false)}
        />
      )}
      {!error && !preview.data && <LoadingLines lines={draft.size} />}
      {unscheduled && <p className={`${styles.hint} ${styles.unscheduled}`}>{unscheduled}</p>}
      {scheduling && preview.data && (
        <ScheduleDialog
          tenant={tenant}
          rules={toSchedule(draft).changes}
          onClose={() => setScheduling(false)}
          onScheduled={onSaved}
          onRaceLost={onRaceLost}
        >
          <Changes {...changes} diff={preview.data} isLater />
          {question && <Effect tenant={tenant} question={question} />}
        </ScheduleDialog>
      )}
      <Group justify="flex-end" mt="lg" gap={8}>
        <Button variant="default" onClick={onClose}>
          Back
        </Button>
        <Button
          variant="default"
          disabled={!preview.data || !!error || unscheduled !== null}
          onClick={() => setScheduling(true)}
        >
          Schedule
        </Button>
        <Button
          disabled={!preview.data || !!error}
          loading={save.isPending}
          onClick={() => save.mutate()}
          data-autofocus
        >
          Save
        </Button>
      </Group>
    </Dialog>
  );
}

interface HeldProps {
  held: HeldRow;
  /** Why the limit for all plans cannot be split. */
  problem: string | null;
  onSplit: () => void;
}

/** Warns that a limit has no effect, because the limit for all plans is lower. */
function Held({ held, problem, onSplit }: HeldProps) {
  const { key_pattern, name } = held.row;
  return (
    <div className={styles.warning} role="status">
      <IconAlert size={16} aria-hidden />
      <div>
        <p>
          <strong>
            {patternInWords(key_pattern)}
            {name && ` (${name})`}:
          </strong>{' '}
          {heldSentence(held)}
        </p>
        {problem ? (
          <p className="soft">{problem}</p>
        ) : (
          <Button variant="default" size="compact-sm" onClick={onSplit}>
            Give each plan its own limit
          </Button>
        )}
      </div>
    </div>
  );
}
