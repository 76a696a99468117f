import { Button, Group } from '@mantine/core';
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useNavigate, useSearch } from '@tanstack/react-router';
import { useCallback, useMemo, useState } from 'react';
import { changed } from '~/api/changes';
import { api, etagOf } from '~/api/client';
import { adaptingQuery, lastHourQuery, plansQuery, type Verdicts } from '~/api/queries';
import { openScheduledQuery } from '~/api/scheduled';
import type { MatrixRow, Plan } from '~/api/types';
import { undoOf } from '~/api/undo';
import { ActionBar } from '~/components/ActionBar';
import { ConflictDialog } from '~/components/ConflictDialog';
import { IconClock, IconPlans, IconPlus } from '~/components/icons';
import { Leaving } from '~/components/Leaving';
import { Card, Page } from '~/components/Page';
import { Query } from '~/components/Query';
import { EmptyState, ErrorState, LoadingLines } from '~/components/states';
import { useLastPassed } from '~/components/Time';
import { done, failed } from '~/components/toast';
import { plural } from '~/domain/format';
import { limitSentence } from '~/domain/rate';
import { ruleLabel } from '~/domain/rule';
import { byRule } from '~/domain/scheduled';
import { headings } from '~/headings';
import { useRole, useTenant } from '~/session';
import { AddRule } from './AddRule';
import { ChangeMany } from './ChangeMany';
import {
  byMeter,
  type Clash,
  candidatesOf,
  cellId,
  type Draft,
  edited,
  merged,
  type Place,
  type Row,
  rowId,
  type Unread,
  withoutCandidates,
  yielded,
} from './draft';
import { asSaved, heldRows, rowsAt, split } from './inForce';
import styles from './Matrix.module.css';
import { filtersFrom, MatrixFilters, rowFits } from './MatrixFilters';
import { MatrixGrid } from './MatrixGrid';
import { PlanForm } from './PlanForm';
import { matrixQuery } from './queries';
import { Review } from './Review';
import { ScheduledChanges } from './ScheduledChanges';

const nothing = new Map<string, Verdicts>();
const none: MatrixRow[] = [];

export default function Plans() {
  const tenant = useTenant();
  const { edit } = useRole();
  const search = useSearch({ from: '/shell/t/$tenant/plans' });
  const navigate = useNavigate();
  const plans = useQuery(plansQuery(tenant));
  const matrix = useQuery(matrixQuery(tenant));
  const { rows: read = none, isPart = false } = matrix.data ?? {};
  const { data: lastHour = nothing } = useQuery(lastHourQuery(tenant));
  const { data: waiting } = useQuery(openScheduledQuery(tenant));
  const scheduled = useMemo(() => byRule(waiting ?? []), [waiting]);
  const adapts = read.some((row) => row.rules.some((rule) => rule.adapt !== null));
  const { data: adapting } = useQuery({ ...adaptingQuery(tenant), enabled: adapts });
  const shares = new Map(adapting?.map(({ rule_id, share_percent }) => [rule_id, share_percent]));
  const queries = useQueryClient();
  const [open, setOpen] = useState<'plan' | 'limit' | 'many' | 'review' | 'schedule' | null>(null);
  const [multiplied, setMultiplied] = useState<string>();
  const [added, setAdded] = useState<Row[]>([]);
  const [shadows, setShadows] = useState<ReadonlySet<string>>(new Set());
  const [draft, setDraft] = useState<Draft>(new Map());
  const [unread, setUnread] = useState<ReadonlyMap<string, Unread>>(new Map());
  const [errors, setErrors] = useState(new Map<string, string>());
  const [lost, setLost] = useState<Clash[]>([]);
  const [typing, setTyping] = useState(false);
  const close = () => setOpen(null);

  function discard(kept: Row[] = []) {
    setDraft(new Map());
    setUnread(new Map());
    setErrors(new Map());
    setAdded(kept);
    setShadows((before) => new Set([...before].filter((id) => kept.some((row) => rowId(row) === id))));
  }

  function discardEdits() {
    discard();
    done('Edits discarded', {
      label: 'Undo',
      run() {
        setDraft((since) => new Map([...draft, ...since]));
        setUnread((since) => new Map([...unread, ...since]));
        setShadows((since) => new Set([...shadows, ...since]));
        setAdded((since) => {
          const known = new Set(since.map(rowId));
          return [...since, ...added.filter((row) => !known.has(rowId(row)))];
        });
      },
    });
  }

  function multiply(plan?: string) {
    setMultiplied(plan);
    setOpen('many');
  }

  function note(place: Place, typed: Unread | null) {
    setUnread((before) => {
      const next = new Map(before);
      if (typed) next.set(cellId(place), typed);
      else next.delete(cellId(place));
      return next;
    });
  }

  const giveEach = useCallback(
    (row: MatrixRow) => {
      setDraft((before) => split(before, row, plans.data ?? []));
      setErrors(new Map());
    },
    [plans.data],
  );

  const blank = useMemo(() => withoutLimit(added, draft, unread), [added, draft, unread]);
  const changes = draft.size + unread.size;
  const dirty = changes + blank.length > 0;
  const candidates = useMemo(() => candidatesOf(read), [read]);
  const ends = useMemo(() => endsOf(read), [read]);
  const passed = useLastPassed(ends);
  const rows = useMemo(
    () => byMeter(withAdded(withoutCandidates(rowsAt(read, passed), candidates), added)),
    [read, passed, candidates, added],
  );
  const shown = useMemo(() => rows.filter((row) => added.includes(row) || rowFits(row, search)), [rows, added, search]);
  const saved = useMemo(() => asSaved(draft, rows, plans.data ?? []), [draft, rows, plans.data]);
  const isFiltered = search.q !== undefined || search.scope !== undefined;

  async function raceLost() {
    const { data } = await matrix.refetch({ throwOnError: true });
    const now = merged(draft, data?.rows ?? []);
    setDraft(now.draft);
    if (now.clashes.length === 0) return asSaved(now.draft, rowsAt(data?.rows ?? [], passed), plans.data ?? []);
    setLost(now.clashes);
    close();
    return null;
  }

  async function move(plan: Plan, to: number) {
    const others = (plans.data ?? []).filter((one) => one !== plan);
    const [before, after] = [others[to - 1]?.position, others[to]?.position];
    const position = ((before ?? (after ?? 0) - 2) + (after ?? (before ?? 0) + 2)) / 2;
    try {
      const params = { tenant, plan: plan.name, etag: etagOf(plan) };
      const moved = await api.patch('/api/v1/tenants/{tenant}/plans/{plan}', { ...params, body: { position } });
      done(`Plan ${plan.name} moved`, undoOf(tenant, moved));
    } catch (error) {
      failed(`Plan ${plan.name} was not moved`, error);
    }
    await changed(queries, tenant, 'plan');
  }

  const actions = edit && (
    <Group gap={8}>
      <Button variant="default" onClick={() => setOpen('plan')}>
        New plan
      </Button>
      <Button leftSection={<IconPlus size={15} />} onClick={() => setOpen('limit')}>
        Add rule
      </Button>
    </Group>
  );

  return (
    <Page {...headings.plans} actions={actions}>
      <Query query={plans} loading={<Loading />}>
        {() => (
          <Query query={matrix} loading={<Loading />}>
            {() => {
              if (rows.length === 0) {
                return (
                  <EmptyState
                    icon={IconPlans}
                    title="No rules yet"
                    action={edit && <Button onClick={() => setOpen('limit')}>Add rule</Button>}
                  >
                    Each row is a rule and each column a plan.
                  </EmptyState>
                );
              }
              return (
                <>
                  {edit && !dirty && search.open === 'schedule' && (
                    <p className={styles.warning} role="note">
                      <IconClock size={16} aria-hidden />
                      To schedule a change, change limits in the cells, then choose Schedule below.
                    </p>
                  )}
                  {(rows.length >= filtersFrom || isFiltered) && (
                    <MatrixFilters
                      rows={rows}
                      shown={shown.length}
                      isPart={isPart}
                      search={search}
                      set={(change) =>
                        navigate({ to: '.', search: (old: object) => ({ ...old, ...change }), replace: true })
                      }
                      onChangeMany={edit ? () => multiply() : undefined}
                    />
                  )}
                  {isPart && matrix.isError && <ErrorState error={matrix.error} onRetry={() => matrix.refetch()} />}
                  {shown.length === 0 && isPart && <Loading />}
                  {shown.length === 0 && !isPart && (
                    <EmptyState icon={IconPlans} title="No rule matches">
                      Change the search or the scope.
                    </EmptyState>
                  )}
                  {shown.length > 0 && (
                    <Card flush>
                      <MatrixGrid
                        tenant={tenant}
                        plans={plans.data ?? []}
                        rows={shown}
                        draft={draft}
                        unread={unread}
                        errors={errors}
                        lastHour={lastHour}
                        shares={shares}
                        candidates={candidates}
                        scheduled={scheduled}
                        editable={edit}
                        added={added[0] && rowId(added[0])}
                        onUnread={note}
                        onSplit={giveEach}
                        onMultiply={isPart ? null : multiply}
                        onMove={move}
                        onTyping={setTyping}
                        onEdit={(change) => {
                          const shadow = shadows.has(rowId(change.place));
                          setDraft((before) => edited(before, shadow ? { ...change, shadow } : change));
                          setErrors(new Map());
                        }}
                      />
                    </Card>
                  )}
                </>
              );
            }}
          </Query>
        )}
      </Query>
      {edit && !dirty && (
        <p className={styles.kbd}>
          Click or type to edit; rates read <code>10/s</code>, <code>600/min</code> or <code>1000/day</code>. Delete
          removes a limit.
        </p>
      )}
      {matrix.data && !isPart && <ScheduledChanges tenant={tenant} rows={rows} />}
      {dirty && (
        <ActionBar label="Unsaved changes" text={unsaved(draft.size, unread.size, blank.length)}>
          <Button variant="default" onClick={discardEdits}>
            Discard edits
          </Button>
          <Button variant="default" disabled={unread.size > 0 || draft.size === 0} onClick={() => setOpen('schedule')}>
            Schedule
          </Button>
          <Button disabled={unread.size > 0 || draft.size === 0} onClick={() => setOpen('review')}>
            Review changes
          </Button>
        </ActionBar>
      )}
      {errors.has('') && <p role="alert">{errors.get('')}</p>}
      {open === 'plan' && <PlanForm tenant={tenant} plan={null} onClose={close} />}
      {open === 'limit' && (
        <AddRule
          taken={read.concat(added).map(rowId)}
          onClose={close}
          onAdd={(row, shadow) => {
            setAdded((rows) => [row, ...rows]);
            if (shadow) setShadows((before) => new Set(before).add(rowId(row)));
          }}
        />
      )}
      {open === 'many' && (
        <ChangeMany
          rows={shown}
          plans={plans.data ?? []}
          draft={draft}
          plan={multiplied}
          onClose={close}
          onChanged={(next) => {
            setDraft(next);
            setErrors(new Map());
          }}
        />
      )}
      {(open === 'review' || open === 'schedule') && (
        <Review
          tenant={tenant}
          draft={draft}
          saved={saved}
          held={heldRows(rows, plans.data ?? [], draft)}
          rows={rows}
          plans={plans.data ?? []}
          scheduled={scheduled}
          schedule={open === 'schedule'}
          onSplit={giveEach}
          onClose={close}
          onSaved={() => {
            discard(blank);
            close();
          }}
          onErrors={(found) => {
            setErrors(found);
            close();
          }}
          onRaceLost={raceLost}
        />
      )}
      <ConflictDialog
        opened={lost.length > 0}
        what={lost.length === 1 ? 'this limit' : 'these limits'}
        versions={lost.map(({ edit: { place, limit }, now }) => ({
          label: ruleLabel(place),
          mine: limit ? limitSentence(limit) : 'no limit',
          theirs: now ? limitSentence(now) : 'no limit',
        }))}
        onKeepMine={() => {
          setLost([]);
          setOpen('review');
        }}
        onTakeTheirs={() => {
          setDraft(yielded(draft, lost));
          setLost([]);
        }}
        onClose={() => setLost([])}
      />
      <Leaving when={dirty || typing} what={losses(changes, blank.length)} />
    </Page>
  );
}

function losses(changes: number, blank: number): string {
  if (changes > 0) return plural(changes, 'change');
  return blank > 0 ? 'The new rule' : 'What you typed';
}

function unsaved(changes: number, unread: number, blank: number): string {
  if (unread === 0) {
    const missing = `${plural(blank, 'new rule')} without a limit`;
    const saved = `${plural(changes, 'change')} not saved`;
    if (changes > 0) return blank > 0 ? `${saved}, ${missing}` : saved;
    return `${missing}. Type one into a cell`;
  }
  const cells = unread === 1 ? '1 cell is invalid' : `${unread} cells are invalid`;
  return `${cells}. Correct the marked cells, or press Escape in them`;
}

function withoutLimit(added: Row[], draft: Draft, unread: ReadonlyMap<string, Unread>): Row[] {
  const filled = new Set([...draft.values()].map(({ place }) => rowId(place)));
  const typed = new Set([...unread.keys()].map((cell) => JSON.stringify(JSON.parse(cell).slice(0, 2))));
  return added.filter((row) => !filled.has(rowId(row)) && !typed.has(rowId(row)));
}

function endsOf(rows: MatrixRow[]): number[] {
  return rows.flatMap(({ rules }) => rules.flatMap(({ expires_at }) => (expires_at ? [Date.parse(expires_at)] : [])));
}

/** The saved rows, below new ones that have no saved cell yet. */
function withAdded(saved: MatrixRow[], added: Row[]): Row[] {
  const known = new Set(saved.map(rowId));
  return [...added.filter((row) => !known.has(rowId(row))), ...saved];
}

function Loading() {
  return (
    <Card flush>
      <LoadingLines lines={8} />
    </Card>
  );
}
