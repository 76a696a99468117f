import { Button } from '@mantine/core';
import { useInfiniteQuery } from '@tanstack/react-query';
import { useSearch } from '@tanstack/react-router';
import { api, body } from '~/api/client';
import { tenantKey } from '~/api/queries';
import type { AuditAction, AuditEntry, AuditObjectKind } from '~/api/types';
import { type Column, DataTable } from '~/components/DataTable';
import { IconDownload, IconHistory } from '~/components/icons';
import { Card } from '~/components/Page';
import { Query } from '~/components/Query';
import { EmptyState } from '~/components/states';
import { RelativeTime } from '~/components/Time';
import { useTimeRange } from '~/components/TimeRange';
import { here, usePanel } from '~/components/usePanel';
import { actorOf, type Names, objectOf, verbOf } from '~/domain/audit';
import type { SettingsSearch } from '~/search';
import { useTenant } from '~/session';
import { EntryPanel } from './EntryPanel';
import { Filters } from './Filters';
import { useNames } from './names';

const pageSize = 100;

/** Every change of the tenant, the latest first; a row opens to what differed, and to undoing it. */
export default function Audit() {
  const tenant = useTenant();
  const search = useSearch({ strict: false }) as SettingsSearch;
  const range = useTimeRange('30d');
  const names = useNames(tenant);
  const entries = useInfiniteQuery({
    queryKey: tenantKey(tenant, 'audit', { ...search, entry: undefined }),
    initialPageParam: undefined as string | undefined,
    queryFn: ({ pageParam: cursor, signal }) =>
      body(
        api.GET('/api/v1/tenants/{tenant}/audit', {
          params: { path: { tenant }, query: { ...filterOf(search, range.at), limit: pageSize, cursor } },
          signal,
        }),
      ),
    getNextPageParam: (page) => page.next_cursor ?? undefined,
  });
  const open = usePanel<number>('entry');

  return (
    <Card
      flush
      title="Audit log"
      lead="Every change, by whom, and from what to what. Most can be undone."
      actions={
        <Button
          component="a"
          variant="default"
          leftSection={<IconDownload size={15} aria-hidden />}
          href={exportUrl(tenant, filterOf(search, range.at))}
          download
        >
          Export CSV
        </Button>
      }
    >
      <Filters tenant={tenant} search={search} />
      <Query query={entries}>
        {({ pages }) => {
          const rows = pages.flatMap(({ items }) => items);
          if (rows.length === 0) return <Nothing filtered={Object.keys(search).length > 0} />;
          return (
            <>
              <DataTable
                label="Changes"
                columns={columnsWith(names)}
                rows={rows}
                rowKey={({ audit_id }) => audit_id}
                open={search.entry}
                to={({ audit_id }) => here({ entry: audit_id })}
                onOpen={({ audit_id }) => open(audit_id)}
              />
              {entries.hasNextPage && (
                <Button
                  variant="subtle"
                  color="gray"
                  m={8}
                  loading={entries.isFetchingNextPage}
                  onClick={() => entries.fetchNextPage()}
                >
                  Earlier changes
                </Button>
              )}
            </>
          );
        }}
      </Query>
      <EntryPanel tenant={tenant} id={search.entry} onClose={() => open(undefined)} />
    </Card>
  );
}

const columnsWith = (names: Names): Column<AuditEntry>[] => [
  { key: 'at', header: 'When', width: 112, render: ({ at }) => <RelativeTime at={at} /> },
  {
    key: 'what',
    names: true,
    header: 'Change',
    render: (entry) => (
      <>
        <span className="soft">{verbOf(entry)}</span> {objectOf(entry, names)}
      </>
    ),
  },
  {
    key: 'by',
    header: 'By',
    width: '28%',
    wide: true,
    render: (entry) => (
      <>
        {actorOf(entry)}
        {entry.actor.act && <span className="soft"> · {entry.actor.act}</span>}
      </>
    ),
  },
];

/** What the server is asked for. */
function filterOf(search: SettingsSearch, at: (now: number) => { from: number; until: number }) {
  const { range, actor, action, kind, object, change } = search;
  const moments = range ? at(Date.now()) : null;
  return {
    from: moments ? new Date(moments.from).toISOString() : undefined,
    until: moments ? new Date(moments.until).toISOString() : undefined,
    actor_id: actor,
    action: action as AuditAction | undefined,
    object_kind: kind as AuditObjectKind | undefined,
    object_id: kind ? object : undefined,
    change_id: change,
  };
}

function exportUrl(tenant: string, filter: ReturnType<typeof filterOf>): string {
  const query = new URLSearchParams({ format: 'csv' });
  for (const [name, value] of Object.entries(filter)) if (value !== undefined) query.set(name, String(value));
  return `/api/v1/tenants/${encodeURIComponent(tenant)}/audit/export?${query}`;
}

function Nothing({ filtered }: { filtered: boolean }) {
  return (
    <EmptyState
      icon={<IconHistory size={20} aria-hidden />}
      title={filtered ? 'No change fits these filters' : 'Nothing has changed yet'}
    >
      {filtered
        ? 'Take one of them away to see more.'
        : 'Each change of a plan, a rule, a user, a key or these settings is kept here, with what it was before.'}
    </EmptyState>
  );
}
