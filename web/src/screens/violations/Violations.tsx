import { Button } from '@mantine/core';
import { useInfiniteQuery, useQuery } from '@tanstack/react-query';
import { useNavigate, useSearch } from '@tanstack/react-router';
import { useEffect, useMemo } from 'react';
import { rulesQuery } from '~/api/queries';
import type { Violation } from '~/api/types';
import { filterOf, violationsQuery } from '~/api/violations';
import { DataTable } from '~/components/DataTable';
import { IconPause, IconPlay } from '~/components/icons';
import { Card, Page } from '~/components/Page';
import { ErrorState, LoadingLines } from '~/components/states';
import { TimeRange, useTimeRange } from '~/components/TimeRange';
import { here, usePanel } from '~/components/usePanel';
import { isNamedRange } from '~/domain/range';
import { violationColumns } from '~/features/violations/columns';
import { ViolationPanel } from '~/features/violations/ViolationPanel';
import type { ViolationsSearch } from '~/search';
import { useTenant } from '~/session';
import { Export } from './Export';
import { FilterBar, isFiltered } from './FilterBar';
import { Footer, Nothing } from './Footer';
import { LiveLine } from './LiveLine';
import { OverTime } from './OverTime';
import { useTail } from './useTail';
import styles from './Violations.module.css';

/** The violations: a chart, filters, and a table whose rows open a panel. */
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
  const { rows: arrived, waiting: held, dropped, show } = tail;
  const { rows, waiting } = useMemo(
    () => joined(arrived, held, dropped ? [] : list.data?.pages),
    [arrived, held, dropped, list.data],
  );
  // An empty list has no rows that could move, so new ones are shown at once.
  useEffect(() => {
    if (list.data && rows.length === 0 && waiting > 0) show();
  });

  const { data: rules = [] } = useQuery(rulesQuery(tenant));
  const open = usePanel<string>('open');
  const set = (change: Partial<ViolationsSearch>) =>
    navigate({ search: (old) => ({ ...old, ...change }), resetScroll: false });
  // New violations are never in a range that has ended.
  const toggle = () =>
    set(
      search.live
        ? { live: undefined }
        : { live: true, ...(isNamedRange(range.text) ? {} : { range: '15m' }) },
    );
  const brush = (from: number, until: number) => {
    if (search.live) set({ live: undefined });
    range.brush(from, until);
  };

  return (
    <Page
      title="Violations"
      lead="Checks that rules denied, or that shadow rules would have denied."
      actions={
        <>
          <TimeRange fallback="1h" />
          <Export tenant={tenant} span={range} filter={filter} />
          <Button
            variant={search.live ? 'light' : 'default'}
            aria-pressed={!!search.live}
            leftSection={search.live ? <IconPause size={14} /> : <IconPlay size={14} />}
            onClick={toggle}
          >
            Live
          </Button>
        </>
      }
    >
      <FilterBar tenant={tenant} search={search} onChange={set} />
      <Card>
        <OverTime tenant={tenant} span={range} search={search} onBrush={brush} />
      </Card>
      {(search.live || waiting > 0) && <LiveLine tail={tail} waiting={waiting} />}
      <Card flush>
        {list.isError && !list.data ? (
          <ErrorState error={list.error} onRetry={() => list.refetch()} />
        ) : !list.data ? (
          <LoadingLines lines={10} />
        ) : rows.length === 0 ? (
          <Nothing list={list} filtered={isFiltered(search)} live={!!search.live} tenant={tenant} />
        ) : (
          <div className={list.isPlaceholderData ? styles.old : undefined} aria-busy={list.isPlaceholderData}>
            <DataTable
              label="Violations"
              columns={violationColumns(rules, rows)}
              rows={rows}
              rowKey={({ violation_id }) => violation_id}
              open={search.open}
              to={({ violation_id }) => here({ open: violation_id })}
              onOpen={({ violation_id }) => open(violation_id)}
            />
          </div>
        )}
      </Card>
      {rows.length > 0 && <Footer list={list} rows={rows} />}
      <ViolationPanel tenant={tenant} id={search.open} rows={rows} onOpen={open} />
    </Page>
  );
}

/** Live and listed violations, each once, latest first. Held live rows are only counted. */
function joined(arrived: Violation[], held: number, pages: { items: Violation[] }[] = []) {
  const before = pages.flatMap(({ items }) => items);
  const listed = new Set(before.map(({ violation_id }) => violation_id));
  const isNew = ({ violation_id }: Violation) => !listed.has(violation_id);
  const shown = arrived.slice(held).filter(isNew);
  const waiting = arrived.slice(0, held).filter(isNew).length;
  return { rows: shown.length === 0 ? before : [...shown, ...before].toSorted(laterFirst), waiting };
}

/** By the microseconds at the start of an id, then by its number. */
function laterFirst(a: Violation, b: Violation): number {
  const [at = 0, number = 0] = a.violation_id.split('-').map(Number);
  const [otherAt = 0, otherNumber = 0] = b.violation_id.split('-').map(Number);
  return otherAt - at || otherNumber - number;
}
