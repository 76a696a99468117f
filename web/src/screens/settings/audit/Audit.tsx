import { Button } from '@mantine/core';
import { useInfiniteQuery } from '@tanstack/react-query';
import { useSearch } from '@tanstack/react-router';
import { api } from '~/api/client';
import { serverNow } from '~/api/clock';
import { exportAddress } from '~/api/exports';
import { pagesQuery, rowsOf } from '~/api/pages';
import { tenantKey } from '~/api/queries';
import type { AuditAction, AuditEntry, AuditObjectKind } from '~/api/types';
import type { Column } from '~/components/DataTable';
import { IconDownload, IconHistory } from '~/components/icons';
import { ListTable } from '~/components/ListTable';
import { Card } from '~/components/Page';
import { EmptyState } from '~/components/states';
import { RelativeTime } from '~/components/Time';
import { useTimeRange } from '~/components/TimeRange';
import { here, usePanel } from '~/components/usePanel';
import { actorOf } from '~/domain/actor';
import { causeOf, changesOf, changeText, type Names, objectOf, verbOf } from '~/domain/audit';
import { isoMoments, type Span } from '~/domain/range';
import { useExport } from '~/features/exports/useExport';
import type { SettingsSearch } from '~/search';
import { useTenant } from '~/session';
import styles from './Audit.module.css';
import { EntryPanel } from './EntryPanel';
import { Filters } from './Filters';
import { useNames } from './names';

const pageSize = 100;

export default function Audit() {
  const tenant = useTenant();
  const search = useSearch({ strict: false }) as SettingsSearch;
  const range = useTimeRange('30d');
  const names = useNames(tenant);
  const entries = useInfiniteQuery({
    ...pagesQuery(
      tenantKey(tenant, 'audit', { ...search, entry: undefined, export: undefined }),
      (cursor, signal, filter) =>
        api.get('/api/v1/tenants/{tenant}/audit', { tenant, ...filter, limit: pageSize, cursor, signal }),
      () => filterOf(search, range),
    ),
    select: rowsOf<AuditEntry>,
  });
  const open = usePanel<string>('entry');
  const { start, isStarting, dialog } = useExport(tenant);

  return (
    <Card
      flush
      title="Audit log"
      actions={
        <Button
          variant="default"
          leftSection={<IconDownload size={15} aria-hidden />}
          loading={isStarting}
          onClick={() => start(exportAddress(tenant, 'audit/export', { format: 'csv', ...filterOf(search, range) }))}
        >
          Export CSV
        </Button>
      }
    >
      <Filters tenant={tenant} search={search} />
      <ListTable
        list={entries}
        noun="change"
        label="Changes"
        columns={columnsWith(names)}
        rowKey={({ audit_id }) => audit_id}
        open={search.entry}
        to={({ audit_id }) => here({ entry: audit_id })}
        onOpen={({ audit_id }) => open(audit_id)}
        none={
          <EmptyState icon={IconHistory} title={Object.keys(search).length > 0 ? 'No results' : 'No changes yet'} />
        }
      />
      {dialog}
      <EntryPanel tenant={tenant} id={search.entry} object={search.object} onClose={() => open(undefined)} />
    </Card>
  );
}

const columnsWith = (names: Names): Column<AuditEntry>[] => [
  { key: 'at', header: 'When', width: 112, render: ({ at }) => <RelativeTime at={at} /> },
  {
    key: 'what',
    names: true,
    wraps: true,
    header: 'Change',
    render: (entry) => (
      <>
        <span className="soft">{verbOf(entry)}</span> {objectOf(entry, names)}
        <Values entry={entry} />
      </>
    ),
  },
  {
    key: 'by',
    header: 'By',
    width: '28%',
    wide: true,
    wraps: true,
    render: (entry) => (
      <>
        {actorOf(entry)}
        {causeOf(entry) && <span className="soft"> · {causeOf(entry)}</span>}
      </>
    ),
  },
];

const mostShown = 4;
const named = new Set(['Pattern', 'Name', 'Plan', 'Rule', 'User']);

function Values({ entry }: { entry: AuditEntry }) {
  // The line above says a creation's name, pattern and plan.
  const changes = changesOf(entry).filter(({ field }) => (entry.before && entry.after) || !named.has(field));
  const shown = changes.slice(0, mostShown).map(changeText);
  if (changes.length > shown.length) shown.push(`${changes.length - shown.length} more`);
  return shown.length > 0 && <span className={`soft ${styles.values}`}>{shown.join(', ')}</span>;
}

function filterOf(search: SettingsSearch, span: Span) {
  const { range, actor, action, kind, object, change } = search;
  return {
    ...(range && isoMoments(span, serverNow())),
    actor_id: actor,
    action: action as AuditAction | undefined,
    object_kind: kind as AuditObjectKind | undefined,
    object_id: kind ? object : undefined,
    change_id: change,
  };
}
