import { Button, SegmentedControl } from '@mantine/core';
import { useInfiniteQuery, useQuery } from '@tanstack/react-query';
import { useNavigate, useSearch } from '@tanstack/react-router';
import { useDeferredValue, useEffect, useMemo } from 'react';
import { rulesQuery } from '~/api/queries';
import type { Violation } from '~/api/types';
import { filterOf, violationsQuery } from '~/api/violations';
import { CopyLink } from '~/components/CopyLink';
import { DataTable } from '~/components/DataTable';
import { IconPause, IconPlay } from '~/components/icons';
import { Card, Page } from '~/components/Page';
import { ErrorState, LoadingLines } from '~/components/states';
import { TimeRange, useTimeRange } from '~/components/TimeRange';
import { here, usePanel } from '~/components/usePanel';
import type { Group } from '~/domain/group';
import { isNamedRange } from '~/domain/range';
import { laterFirst } from '~/domain/violation';
import { BlockAddress } from '~/features/temporary/BlockAddress';
import { GroupMenu } from '~/features/temporary/GroupMenu';
import { TemporaryRules } from '~/features/temporary/TemporaryRules';
import { violationColumns } from '~/features/violations/columns';
import { ViolationPanel } from '~/features/violations/ViolationPanel';
import { headings } from '~/headings';
import type { ViolationsSearch } from '~/search';
import { useRole, useTenant } from '~/session';
import { Export } from './Export';
import { FilterBar, isFiltered } from './FilterBar';
import { Footer, Nothing } from './Footer';
import { Groups, groupTitles } from './Groups';
import { LiveLine } from './LiveLine';
import { OverTime } from './OverTime';
import { useTail } from './useTail';
import styles from './Violations.module.css';

export default function Violations() {
  const tenant = useTenant();
  const search: ViolationsSearch = useSearch({ from: '/shell/t/$tenant/violations' });
  const navigate = useNavigate({ from: '/t/$tenant/violations' });
  const range = useTimeRange('1h');
  const filter = filterOf(search);
  const list = useInfiniteQuery({
    ...violationsQuery(tenant, range, filter),
    refetchOnWindowFocus: !search.live, // rows would move; the stream brings what is new
  });
  const tail = useTail(tenant, filter, range.text, !!search.live);
  const { rows: arrived, held, dropped, show, latest } = tail;
  const { rows, waiting } = useMemo(
    () => joined(arrived, held, dropped ? [] : list.data?.pages),
    [arrived, held, dropped, list.data],
  );
  const asked = `${JSON.stringify(filter)} ${range.text}`;
  const answer = useMemo(
    () => ({ rows, of: list.isPlaceholderData ? null : asked }),
    [rows, list.isPlaceholderData, asked],
  );
  // A hundred rows are drawn in steps, between which the page answers.
  const { rows: drawn, of: drawnOf } = useDeferredValue(answer);
  const isOld = drawnOf !== asked; // rows of another filter or range
  // Rows of another filter say nothing about missing ones here.
  latest.current = list.isPlaceholderData ? undefined : (arrived[0] ?? rows[0]);
  // An empty list has no rows that could move, so new ones are shown at once.
  useEffect(() => {
    if (list.data && rows.length === 0 && waiting > 0) show();
  });

  const { edit } = useRole();
  const group = groupNamed(search);
  const { data: rules = [] } = useQuery(rulesQuery(tenant));
  const open = usePanel<string>('open');
  const set = (change: Partial<ViolationsSearch>) =>
    navigate({ search: (old) => ({ ...old, ...change }), resetScroll: false });
  // New violations are never in a range that has ended.
  const toggle = () =>
    set(search.live ? { live: undefined } : { live: true, ...(isNamedRange(range.text) ? {} : { range: '15m' }) });
  const brush = (from: number, until: number) => {
    if (search.live) set({ live: undefined });
    range.brush(from, until);
  };

  return (
    <Page
      {...headings.violations}
      actions={
        <>
          <TimeRange fallback="1h" />
          <CopyLink range={range} />
          <Export tenant={tenant} span={range} filter={filter} />
          {edit && group && <GroupMenu tenant={tenant} group={group} label="Block or let through" />}
          {!search.group && (
            <Button
              variant={search.live ? 'light' : 'default'}
              aria-pressed={!!search.live}
              leftSection={search.live ? <IconPause size={14} /> : <IconPlay size={14} />}
              onClick={toggle}
            >
              Live
            </Button>
          )}
        </>
      }
    >
      <FilterBar tenant={tenant} search={search} onChange={set} />
      <Card>
        <OverTime tenant={tenant} span={range} search={search} onBrush={brush} />
      </Card>
      <TemporaryRules tenant={tenant} />
      <SegmentedControl
        aria-label="Group by"
        className={styles.views}
        data={[
          { value: '', label: 'List' },
          ...Object.entries(groupTitles).map(([value, label]) => ({ value, label })),
        ]}
        value={search.group ?? ''}
        onChange={(group) => set(groupedBy(group as NonNullable<ViolationsSearch['group']> | ''))}
      />
      {search.group ? (
        <Groups tenant={tenant} span={range} by={search.group} search={search} />
      ) : (
        <>
          {(search.live || waiting > 0) && <LiveLine tail={tail} waiting={waiting} />}
          <Card flush>
            {list.isError && !list.data ? (
              <ErrorState error={list.error} onRetry={() => list.refetch()} />
            ) : !list.data || (rows.length > 0 && drawn.length === 0) ? (
              <LoadingLines lines={10} />
            ) : rows.length === 0 ? (
              <Nothing list={list} filtered={isFiltered(search)} live={!!search.live} tenant={tenant} />
            ) : (
              <div className={isOld ? styles.old : undefined} aria-busy={isOld}>
                <DataTable
                  label="Violations"
                  columns={violationColumns(rules, drawn)}
                  rows={drawn}
                  rowKey={({ violation_id }) => violation_id}
                  open={search.open}
                  to={({ violation_id }) => here({ open: violation_id })}
                  onOpen={({ violation_id }) => open(violation_id)}
                />
              </div>
            )}
          </Card>
          {rows.length > 0 && <Footer list={list} rows={rows} />}
          <ViolationPanel
            tenant={tenant}
            id={search.open}
            rows={rows}
            onOpen={open}
            block={(ip) => <BlockAddress key={ip} tenant={tenant} ip={ip} />}
          />
        </>
      )}
    </Page>
  );
}

function groupNamed({ user, ip }: ViolationsSearch): Group | undefined {
  if (user !== undefined) return { by: 'user', value: user };
  if (ip !== undefined) return { by: ip.includes('/') ? 'network' : 'ip', value: ip };
  return undefined;
}

/** A ranking has the filters of outcome and rule only, and is not live. */
function groupedBy(group: NonNullable<ViolationsSearch['group']> | ''): Partial<ViolationsSearch> {
  if (group === '') return { group: undefined };
  const none = { user: undefined, endpoint: undefined, ip: undefined, scope: undefined, plan: undefined };
  return { ...none, group, live: undefined, open: undefined, ...(group === 'rule' && { rule: undefined }) };
}

/** Held live rows are only counted. */
function joined(arrived: Violation[], held: ReadonlySet<string>, pages: { items: Violation[] }[] = []) {
  const before = pages.flatMap(({ items }) => items);
  const listed = new Set(before.map(({ violation_id }) => violation_id));
  const fresh = arrived.filter(({ violation_id }) => !listed.has(violation_id));
  const shown = fresh.filter(({ violation_id }) => !held.has(violation_id));
  const waiting = fresh.length - shown.length;
  return { rows: shown.length === 0 ? before : [...shown, ...before].toSorted(laterFirst), waiting };
}
