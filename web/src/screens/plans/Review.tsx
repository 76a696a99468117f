import { Button, Group } from '@mantine/core';
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { useEffect } from 'react';
import { api, body } from '~/api/client';
import { isStatus, ProblemError } from '~/api/problem';
import { tenantKey, type Verdicts } from '~/api/queries';
import type { MatrixDiff, Rule } from '~/api/types';
import { Dialog } from '~/components/Dialog';
import { ErrorState, LoadingLines } from '~/components/states';
import { done } from '~/components/toast';
import { exactNumber, plural } from '~/domain/format';
import { patternInWords } from '~/domain/pattern';
import { limitSentence } from '~/domain/rate';
import { cellsOf, type Draft, errorsByCell } from './draft';
import styles from './Matrix.module.css';

interface Props {
  tenant: string;
  draft: Draft;
  lately: Map<number, Verdicts>;
  onClose: () => void;
  onSaved: () => void;
  /** Some cells cannot be saved; which, and why. */
  onErrors: (errors: Map<string, string>) => void;
  onRaceLost: () => void;
}

/** The changes as the server would make them, before it does. */
export function Review({ tenant, draft, lately, onClose, onSaved, onErrors, onRaceLost }: Props) {
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
    // Not among the tenant's: a save drops those, and this is about what was there before it.
    queryKey: ['preview', tenant, cellsOf(draft)],
    queryFn: ({ signal }) => ask(true, signal),
    gcTime: 0,
    staleTime: 0,
  });
  const save = useMutation({
    mutationFn: () => ask(false),
    onSuccess: async (diff) => {
      await queries.invalidateQueries({ queryKey: tenantKey(tenant) });
      done(`${plural(diff.changes.length, 'change')} saved; in force everywhere within 2 s`);
      onSaved();
    },
  });

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
      {error && <ErrorState error={error} onRetry={retry} />}
      {!error && preview.data && <Changes diff={preview.data} lately={lately} />}
      {!error && !preview.data && <LoadingLines lines={draft.size} />}
      <Group justify="flex-end" mt="lg">
        <Button variant="default" onClick={onClose}>
          Back
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

function Changes({ diff, lately }: { diff: MatrixDiff; lately: Map<number, Verdicts> }) {
  return (
    <>
      <p className="soft">
        Users keep what is in their buckets. Processes that answer checks read the change within 2 s.
      </p>
      <ul className={styles.diff}>
        {diff.changes.map(({ before, after }) => {
          const rule = (after ?? before) as Rule;
          const denials = before && lately.get(before.rule_id);
          return (
            <li key={`${rule.key_pattern} ${rule.name} ${rule.plan}`}>
              <span>
                {patternInWords(rule.key_pattern)}
                {rule.name && ` (${rule.name})`} on <strong>{rule.plan ?? 'all plans'}</strong>
              </span>
              {before && (
                <span className={styles.from}>
                  <s>{limitSentence(before)}</s>
                </span>
              )}
              <span className={after ? styles.to : styles.removed}>
                {after ? limitSentence(after) : 'no limit any more'}
              </span>
              {denials && (
                <span className={styles.hint}>
                  In the last hour {exactNumber(denials.denied)} of {exactNumber(denials.checks)} checks were
                  above it.
                </span>
              )}
            </li>
          );
        })}
      </ul>
    </>
  );
}
