import { Button, Select } from '@mantine/core';
import { useInfiniteQuery } from '@tanstack/react-query';
import { useNavigate, useSearch } from '@tanstack/react-router';
import { api, body } from '~/api/client';
import { serverNow } from '~/api/clock';
import { securityExport } from '~/api/exports';
import { tenantKey } from '~/api/queries';
import type { SecurityEvent, SecurityEventList } from '~/api/types';
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
import { useRole, useSession, useTenant } from '~/session';
import styles from './Security.module.css';

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
  return <OfPlatform />;
}

/** Who was let in to a tenant and who was not, for its owners: a section of the settings. */
export function TenantSecurityLog() {
  const { own } = useRole();
  return own ? <OfTenant /> : <NoPermission need="own" />;
}

function OfPlatform() {
  const { kind, email, ip, tenant } = useSearch({ strict: false }) as SecuritySearch;
  const filter = { kind, email, ip, tenant };
  const range = useTimeRange(defaultRange);
  const set = useSet();
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
            href={securityExport({ ...filter, ...isoMoments(range, serverNow()) })}
            download
          >
            Export CSV
          </Button>
        </>
      }
    >
      <Card flush>
        <div className={styles.filters}>
          <KindFilter />
          <FilterField label="E-mail" value={email} onChange={(next) => set({ email: next })} search />
          <FilterField label="IP address" value={ip} onChange={(next) => set({ ip: next })} />
          <FilterField label="Tenant" value={tenant} onChange={(next) => set({ tenant: next })} />
          <Clear filter={filter} />
        </div>
        <Events
          name={['security log']}
          filter={filter}
          none="Nobody signed in during this time."
          read={(query, signal) => body(api.GET('/api/v1/security-log', { params: { query }, signal }))}
        />
      </Card>
    </Page>
  );
}

function OfTenant() {
  const tenant = useTenant();
  const { kind, ip } = useSearch({ strict: false }) as SecuritySearch;
  const filter = { kind, ip };
  const set = useSet();
  return (
    <Card
      flush
      title="Security log"
      lead="Exports, denied permissions and refused keys in this tenant, of members, keys and platform admins."
      actions={<TimeRange fallback={defaultRange} />}
    >
      <div className={styles.filters}>
        <KindFilter />
        <FilterField label="IP address" value={ip} onChange={(next) => set({ ip: next })} />
        <Clear filter={filter} />
      </div>
      <Events
        name={tenantKey(tenant, 'security log')}
        filter={filter}
        none="Nothing was exported or refused during this time."
        ofTenant
        read={(query, signal) =>
          body(
            api.GET('/api/v1/tenants/{tenant}/security-log', { params: { path: { tenant }, query }, signal }),
          )
        }
      />
    </Card>
  );
}

/** Filters live in the address. */
function useSet() {
  const navigate = useNavigate();
  return (more: Partial<SecuritySearch>) =>
    navigate({ to: '.', search: (old: object) => ({ ...old, ...more }) });
}

function KindFilter() {
  const { kind } = useSearch({ strict: false }) as SecuritySearch;
  const set = useSet();
  return (
    <Select
      clearable
      aria-label="Event"
      placeholder="Any event"
      data={securityKinds}
      value={kind ?? null}
      onChange={(next) => set({ kind: next ?? undefined })}
    />
  );
}

const isFiltered = (filter: Filter) => Object.values(filter).some((value) => value !== undefined);

function Clear({ filter }: { filter: Filter }) {
  const set = useSet();
  if (!isFiltered(filter)) return null;
  return (
    <Button
      variant="subtle"
      color="gray"
      leftSection={<IconX size={14} aria-hidden />}
      onClick={() => set({ kind: undefined, email: undefined, ip: undefined, tenant: undefined })}
    >
      Clear
    </Button>
  );
}

type Filter = Omit<SecuritySearch, 'range'>;
type Span = ReturnType<typeof isoMoments>;

/** Where a page begins. All pages of a list have the moments of its first one, as their cursors require. */
interface Next {
  cursor?: string;
  span?: Span;
}

function Events({
  name,
  filter,
  none,
  ofTenant = false,
  read,
}: {
  name: readonly unknown[];
  filter: Filter;
  none: string;
  /** Leaves the tenant out. */
  ofTenant?: boolean;
  read: (
    query: Filter & Span & { limit: number; cursor?: string },
    signal: AbortSignal,
  ) => Promise<SecurityEventList>;
}) {
  const range = useTimeRange(defaultRange);
  const events = useInfiniteQuery({
    queryKey: [...name, filter, range.text],
    initialPageParam: {} as Next,
    queryFn: async ({ pageParam: { cursor, span = isoMoments(range, serverNow()) }, signal }) => {
      const page = await read({ ...filter, ...span, limit: pageSize, cursor }, signal);
      return { ...page, span };
    },
    getNextPageParam: ({ next_cursor, span }): Next | undefined =>
      next_cursor ? { cursor: next_cursor, span } : undefined,
  });
  return (
    <Query query={events}>
      {({ pages }) => {
        const rows = pages.flatMap(({ items }) => items);
        if (rows.length === 0) {
          return (
            <EmptyState title="No results">
              {isFiltered(filter) ? 'Remove a filter to see more.' : none}
            </EmptyState>
          );
        }
        return (
          <>
            <DataTable
              label="Events"
              columns={ofTenant ? columns.filter(({ key }) => key !== 'tenant') : columns}
              rows={rows}
              rowKey={({ event_id }) => event_id}
            />
            <ShowMore list={events} rows={rows} noun="event" />
          </>
        );
      }}
    </Query>
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
