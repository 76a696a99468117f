import { Button, Select } from '@mantine/core';
import { useInfiniteQuery } from '@tanstack/react-query';
import { useNavigate, useSearch } from '@tanstack/react-router';
import { api, body } from '~/api/client';
import { securityExport } from '~/api/exports';
import type { SecurityEvent } from '~/api/types';
import { type Column, DataTable } from '~/components/DataTable';
import { FilterField } from '~/components/FilterField';
import { IconDownload, IconX } from '~/components/icons';
import { Outcome } from '~/components/Outcome';
import { Card, Page } from '~/components/Page';
import { Query } from '~/components/Query';
import { ShowMore } from '~/components/ShowMore';
import { EmptyState, NoPermission } from '~/components/states';
import { RelativeTime } from '~/components/Time';
import { TimeRange, useTimeRange } from '~/components/TimeRange';
import { browserOf } from '~/domain/browser';
import { isoMoments } from '~/domain/range';
import { securityKinds, titleOf } from '~/domain/security';
import type { SecuritySearch } from '~/search';
import { useSession } from '~/session';
import styles from './Platform.module.css';

const pageSize = 100;
const defaultRange = '7d';

/** Who got in and who did not, for platform admins. */
export default function SecurityLog() {
  const { account } = useSession();
  if (!account.platform_admin) {
    return (
      <Page title="Security log">
        <NoPermission need="platform">This requires a platform admin.</NoPermission>
      </Page>
    );
  }
  return <EventList />;
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

/** Where a page begins. All pages of a list have the moments of its first one, as their cursors require. */
interface Next {
  cursor?: string;
  span?: ReturnType<typeof isoMoments>;
}

function EventList() {
  const { kind, email, ip, tenant } = useSearch({ strict: false }) as SecuritySearch;
  const range = useTimeRange(defaultRange);
  const navigate = useNavigate();
  const set = (more: Partial<SecuritySearch>) =>
    navigate({ to: '.', search: (old: object) => ({ ...old, ...more }) });
  const filter = { kind, email, ip, tenant };
  const events = useInfiniteQuery({
    queryKey: ['security log', filter, range.text],
    initialPageParam: {} as Next,
    queryFn: async ({ pageParam: { cursor, span = isoMoments(range) }, signal }) => {
      const query = { ...filter, ...span, limit: pageSize, cursor };
      const page = await body(api.GET('/api/v1/security-log', { params: { query }, signal }));
      return { ...page, span };
    },
    getNextPageParam: ({ next_cursor, span }): Next | undefined =>
      next_cursor ? { cursor: next_cursor, span } : undefined,
  });
  const filtered = Object.values(filter).some((value) => value !== undefined);
  return (
    <Page
      title="Security log"
      lead="Sign-ins, failures, changed passwords, denied permissions and exports, of all accounts and keys."
      actions={
        <>
          <TimeRange fallback={defaultRange} />
          <Button
            component="a"
            variant="default"
            leftSection={<IconDownload size={15} aria-hidden />}
            href={securityExport({ ...filter, ...isoMoments(range) })}
            download
          >
            Export CSV
          </Button>
        </>
      }
    >
      <Card flush>
        <div className={styles.filters}>
          <Select
            clearable
            aria-label="Event"
            placeholder="Any event"
            data={securityKinds}
            value={kind ?? null}
            onChange={(next) => set({ kind: next ?? undefined })}
          />
          <FilterField label="E-mail" value={email} onChange={(next) => set({ email: next })} search />
          <FilterField label="IP address" value={ip} onChange={(next) => set({ ip: next })} />
          <FilterField label="Tenant" value={tenant} onChange={(next) => set({ tenant: next })} />
          {filtered && (
            <Button
              variant="subtle"
              color="gray"
              leftSection={<IconX size={14} aria-hidden />}
              onClick={() => set({ kind: undefined, email: undefined, ip: undefined, tenant: undefined })}
            >
              Clear
            </Button>
          )}
        </div>
        <Query query={events}>
          {({ pages }) => {
            const rows = pages.flatMap(({ items }) => items);
            if (rows.length === 0) {
              return (
                <EmptyState title="No results">
                  {filtered ? 'Remove a filter to see more.' : 'Nobody signed in during this time.'}
                </EmptyState>
              );
            }
            return (
              <>
                <DataTable label="Events" columns={columns} rows={rows} rowKey={({ event_id }) => event_id} />
                <ShowMore list={events} rows={rows} noun="event" />
              </>
            );
          }}
        </Query>
      </Card>
    </Page>
  );
}
