import { Select } from '@mantine/core';
import { useInfiniteQuery } from '@tanstack/react-query';
import { useNavigate, useSearch } from '@tanstack/react-router';
import { serverNow } from '~/api/clock';
import { pagesQuery, rowsOf } from '~/api/pages';
import type { SecurityEvent, SecurityEventList } from '~/api/types';
import { ClearFilters } from '~/components/ClearFilters';
import type { Column } from '~/components/DataTable';
import { ListTable } from '~/components/ListTable';
import { Outcome } from '~/components/Outcome';
import { EmptyState } from '~/components/states';
import { RelativeTime } from '~/components/Time';
import { useTimeRange } from '~/components/TimeRange';
import { browserOf } from '~/domain/browser';
import { isoMoments } from '~/domain/range';
import { type securityKinds, titleOf } from '~/domain/security';
import type { SecuritySearch } from '~/search';

const pageSize = 100;

export const defaultRange = '7d';

export function useSet() {
  const navigate = useNavigate();
  return (more: Partial<SecuritySearch>) => navigate({ to: '.', search: (old: object) => ({ ...old, ...more }) });
}

export function KindFilter({ kinds }: { kinds: typeof securityKinds }) {
  const { kind } = useSearch({ strict: false }) as SecuritySearch;
  const set = useSet();
  return (
    <Select
      clearable
      aria-label="Event"
      placeholder="Any event"
      data={kinds}
      value={kind ?? null}
      onChange={(next) => set({ kind: next ?? undefined })}
    />
  );
}

const isFiltered = (filter: Filter) => Object.values(filter).some((value) => value !== undefined);

export function Clear({ filter }: { filter: Filter }) {
  const set = useSet();
  if (!isFiltered(filter)) return null;
  return <ClearFilters onClear={() => set({ kind: undefined, email: undefined, ip: undefined, tenant: undefined })} />;
}

type Filter = Omit<SecuritySearch, 'range'>;
type Span = ReturnType<typeof isoMoments>;

export function Events({
  name,
  filter,
  none,
  ofTenant = false,
  read,
}: {
  name: readonly unknown[];
  filter: Filter;
  none: string;
  ofTenant?: boolean;
  read: (query: Filter & Span & { limit: number; cursor?: string }, signal: AbortSignal) => Promise<SecurityEventList>;
}) {
  const range = useTimeRange(defaultRange);
  const events = useInfiniteQuery({
    ...pagesQuery(
      [...name, filter, range.text],
      (cursor, signal, span) => read({ ...filter, ...span, limit: pageSize, cursor }, signal),
      () => isoMoments(range, serverNow()),
    ),
    select: rowsOf<SecurityEvent>,
  });
  return (
    <ListTable
      list={events}
      noun="event"
      label="Events"
      columns={ofTenant ? columns.filter(({ key }) => key !== 'tenant') : columns}
      rowKey={({ event_id }) => event_id}
      none={<EmptyState title="No results">{isFiltered(filter) ? 'Remove a filter to see more.' : none}</EmptyState>}
    />
  );
}

const columns: Column<SecurityEvent>[] = [
  { key: 'at', header: 'When', width: 104, render: ({ at }) => <RelativeTime at={at} /> },
  {
    key: 'event',
    header: 'Event',
    render: (event) => (event.succeeded ? titleOf(event) : <Outcome tone="denied">{titleOf(event)}</Outcome>),
  },
  {
    key: 'who',
    header: 'Who',
    render: ({ who, typed, key_id }) =>
      who ||
      (typed && (
        // The mark comes first, so that a narrow column does not cut it off.
        <span title={`${typed}, as typed by a stranger`}>
          <span className="soft">typed</span> {typed}
        </span>
      )) ||
      key_id || <span className="soft">unknown</span>,
  },
  { key: 'ip', header: 'Address', width: 150, wide: true, render: ({ ip }) => ip },
  {
    key: 'browser',
    header: 'Browser',
    width: 150,
    wide: true,
    render: ({ user_agent }) => user_agent && <span title={user_agent}>{browserOf(user_agent)}</span>,
  },
  { key: 'tenant', header: 'Tenant', width: 110, wide: true, render: ({ tenant }) => tenant },
  {
    key: 'detail',
    header: 'Detail',
    wide: true,
    render: ({ detail }) => (
      <span className="soft" title={detail}>
        {detail}
      </span>
    ),
  },
];
