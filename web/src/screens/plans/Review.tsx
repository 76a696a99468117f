import { Button } from '@mantine/core';
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { changed } from '~/api/changes';
import { api, tagged } from '~/api/client';
import { isStatus, ProblemError } from '~/api/problem';
import type { MatrixRow, Plan, ScheduledChange } from '~/api/types';
import { undoOf } from '~/api/undo';
import { Effect } from '~/components/Effect';
import { FormDialog } from '~/components/FormDialog';
import { IconAlert } from '~/components/icons';
import { ErrorState, LoadingLines } from '~/components/states';
import { done } from '~/components/toast';
import { mostMerges } from '~/components/useSave';
import { plural } from '~/domain/format';
import { ruleTitle } from '~/domain/rule';
import { StartReplay } from '~/features/replay/StartReplay';
import { ScheduleDialog } from '~/features/scheduled/ScheduleDialog';
import { Changes, candidateOf } from './Changes';
import { cellsOf, type Draft, errorsByCell, scheduleProblem, toSchedule } from './draft';
import { type HeldRow, heldSentence, splitProblem } from './inForce';
import styles from './Matrix.module.css';
import { matrixQuery, withSaved } from './queries';

interface Props {
  tenant: string;
  draft: Draft;
  saved: Draft;
  held: HeldRow[];
  rows: MatrixRow[];
  plans: Plan[];
  scheduled: Map<string, ScheduledChange>;
  onSplit: (row: MatrixRow) => void;
  schedule: boolean;
  onClose: () => void;
  onSaved: () => void;
  onErrors: (errors: Map<string, string>) => void;
  /** Merges the draft with the saved version; null if the reader has to choose. */
  onRaceLost: () => Promise<Draft | null>;
}

export function Review(props: Props) {
  const { tenant, draft, saved, held, rows, plans, scheduled, schedule } = props;
  const { onSplit, onClose, onSaved, onErrors, onRaceLost } = props;
  const queries = useQueryClient();
  async function ask(dryRun: boolean, signal?: AbortSignal) {
    let cells = cellsOf(saved);
    for (let merges = 0; ; merges++) {
      try {
        const params = { tenant };
        const changes = { dry_run: dryRun, cells };
        return await tagged(api.post('/api/v1/tenants/{tenant}/matrix', { ...params, body: changes, signal }));
      } catch (error) {
        if (error instanceof ProblemError && error.document.errors) onErrors(errorsByCell(saved, error.document));
        if (!isStatus(error, 412) || merges === mostMerges) throw error;
        const merged = await onRaceLost();
        if (!merged) return undefined;
        cells = cellsOf(merged);
      }
    }
  }
  const preview = useQuery({
    // Not a key of the tenant: a save would refetch it and show no changes.
    queryKey: ['preview', tenant, cellsOf(saved)],
    queryFn: async ({ signal }) => (await ask(true, signal))?.value ?? null,
    gcTime: 0,
    staleTime: 0,
    retry: false,
  });
  async function save() {
    const answer = await ask(false);
    if (!answer) return;
    const { value: diff, etag } = answer;
    queries.setQueryData(matrixQuery(tenant).queryKey, (matrix) => matrix && withSaved(matrix, diff.changes, etag));
    await changed(queries, tenant, 'rule');
    done(`${plural(draft.size, 'change')} saved. All checks follow within 2 s`, undoOf(tenant, diff));
    onSaved();
  }

  const question = preview.data ? candidateOf(preview.data) : null;
  const [replaying, setReplaying] = useState(false);
  const changes = { tenant, draft, saved, rows, plans, scheduled };
  const unscheduled = scheduleProblem(saved);
  const [scheduling, setScheduling] = useState(schedule);

  const { error } = preview;
  return (
    <FormDialog
      onClose={onClose}
      size={560}
      title={`Save ${plural(draft.size, 'change')}?`}
      cancel="Back"
      verb="Save"
      disabled={!preview.data || !!error}
      save={save}
      onSaved={() => undefined}
      beside={
        <>
          {replaying && question && (
            <StartReplay
              tenant={tenant}
              candidate={question}
              title={`${plural(draft.size, 'change')} of plans`}
              onClose={() => setReplaying(false)}
            />
          )}
          {scheduling && !unscheduled && preview.data && (
            <ScheduleDialog
              tenant={tenant}
              rules={toSchedule(saved).changes}
              onClose={() => setScheduling(false)}
              onScheduled={onSaved}
              onRaceLost={onRaceLost}
            >
              <Changes {...changes} diff={preview.data} isLater />
              {question && <Effect tenant={tenant} question={question} />}
            </ScheduleDialog>
          )}
        </>
      }
      others={
        <Button variant="default" disabled={!preview.data || !!error} onClick={() => setScheduling(true)}>
          Schedule
        </Button>
      }
    >
      {held.map((one) => (
        <Held
          key={`${one.row.key_pattern} ${one.row.name}`}
          held={one}
          problem={splitProblem(one.row, plans)}
          onSplit={() => onSplit(one.row)}
        />
      ))}
      {error && <ErrorState error={error} onRetry={() => preview.refetch()} />}
      {!error && preview.data && <Changes {...changes} diff={preview.data} />}
      {!error && question && (
        <>
          <Effect tenant={tenant} question={question} />
          <Button variant="default" size="compact-sm" mt="xs" onClick={() => setReplaying(true)}>
            Replay all
          </Button>
        </>
      )}
      {!error && !preview.data && <LoadingLines lines={draft.size} />}
      {scheduling && unscheduled && (
        <p role="alert" className={`${styles.hint} ${styles.unscheduled}`}>
          {unscheduled}
        </p>
      )}
    </FormDialog>
  );
}

interface HeldProps {
  held: HeldRow;
  problem: string | null;
  onSplit: () => void;
}

function Held({ held, problem, onSplit }: HeldProps) {
  return (
    <div className={styles.warning} role="status">
      <IconAlert size={16} aria-hidden />
      <div>
        <p>
          <strong>{ruleTitle(held.row)}:</strong> {heldSentence(held)}
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
