import { Button } from '@mantine/core';
import { keepPreviousData, useInfiniteQuery } from '@tanstack/react-query';
import { useNavigate, useSearch } from '@tanstack/react-router';
import { useMemo } from 'react';
import type { Violation } from '~/api/types';
import { filterOf, violationsQuery } from '~/api/violations';
import { DataTable } from '~/components/DataTable';
import { IconPause, IconPlay } from '~/components/icons';
import { Card, Page } from '~/components/Page';
import { ErrorState, LoadingLines } from '~/components/states';
import { TimeRange, useTimeRange } from '~/components/TimeRange';
import { usePanel } from '~/components/usePanel';
import { isNamedRange } from '~/domain/range';
import type { ViolationsSearch } from '~/search';
import { useTenant } from '~/session';
import { violationColumns } from './columns';
import { Export } from './Export';
import { FilterBar, isFiltered } from './FilterBar';
import { Footer, Nothing } from './Footer';
import { LiveLine } from './LiveLine';
import { OverTime } from './OverTime';
import { ViolationPanel } from './Panel';
import { useTail } from './useTail';
import styles from './Violations.module.css';

/** Who was limited, by which rule, since when, from where: a chart, the rows below it, each with its story. */
export default function Violations() {
  const tenant = useTenant();
  const search: ViolationsSearch = useSearch({ from: '/shell/t/$tenant/violations' });
  const navigate = useNavigate({ from: '/t/$tenant/violations' });
  const range = useTimeRange('1h');
  const filter = filterOf(search);
  const list = useInfiniteQuery({
    ...violationsQuery(tenant, range, filter),
    placeholderData: keepPreviousData,
  });
  const tail = useTail(tenant, filter, !!search.live);
  const rows = useMemo(() => joined(tail.rows, list.data?.pages), [tail.rows, list.data]);

  const open = usePanel<string>('open');
  const set = (change: Partial<ViolationsSearch>) =>
    navigate({ search: (old) => ({ ...old, ...change }), resetScroll: false });
  // What arrives now is in no time that has passed.
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
      lead="Checks that were denied, and those that shadow rules would have denied."
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
        <OverTime
          tenant={tenant}
          span={range}
          search={search}
          found={rows}
          // What arrives is later than the list.
          moments={search.live ? range.at(Date.now()) : list.data?.pages[0]?.moments}
          onBrush={brush}
        />
      </Card>
      {search.live && <LiveLine tail={tail} />}
      <Card flush>
        {list.isError && !list.data ? (
          <ErrorState error={list.error} onRetry={() => list.refetch()} />
        ) : !list.data ? (
          <LoadingLines lines={10} />
        ) : rows.length === 0 ? (
          <Nothing list={list} filtered={isFiltered(search)} live={!!search.live} tenant={tenant} />
        ) : (
          <div className={list.isPlaceholderData ? styles.old : undefined}>
            <DataTable
              label="Violations"
              columns={violationColumns()}
              rows={rows}
              rowKey={({ violation_id }) => violation_id}
              open={search.open}
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

/** What arrived since, and below it what was there; each once. */
function joined(arrived: Violation[], pages: { items: Violation[] }[] = []): Violation[] {
  const known = new Set(arrived.map(({ violation_id }) => violation_id));
  const before = pages.flatMap(({ items }) => items);
  return [...arrived, ...before.filter(({ violation_id }) => !known.has(violation_id))];
}
