import { Button } from '@mantine/core';
import { useInfiniteQuery, useMutation, useQueryClient } from '@tanstack/react-query';
import { api } from '~/api/client';
import type { RemovedTenant } from '~/api/types';
import { type Column, DataTable } from '~/components/DataTable';
import { Card } from '~/components/Page';
import { ShowMore } from '~/components/ShowMore';
import { RelativeTime } from '~/components/Time';
import { done, failed } from '~/components/toast';
import { plural } from '~/domain/format';

const pageSize = 20;
const removedKey = ['removed tenants'] as const;

/** Tenants that were removed: those that can be restored, and the receipts of those that are erased. */
export function RemovedTenants({ onRestored }: { onRestored: (slug: string) => Promise<void> }) {
  const queries = useQueryClient();
  const removed = useInfiniteQuery({
    queryKey: removedKey,
    initialPageParam: undefined as string | undefined,
    queryFn: ({ pageParam: cursor, signal }) => api.get('/api/v1/removed-tenants', { limit: pageSize, cursor, signal }),
    getNextPageParam: (page) => page.next_cursor ?? undefined,
  });
  const restore = useMutation({
    mutationFn: ({ slug }: RemovedTenant) => api.post('/api/v1/removed-tenants/{slug}/restore', { slug }),
    onSuccess: async (_, { slug, name }) => {
      await onRestored(slug);
      done(`${name} is restored. It is suspended`);
    },
    onError: (error) => failed('Could not restore the tenant', error),
    onSettled: () => queries.invalidateQueries({ queryKey: removedKey }),
  });
  const rows = removed.data?.pages.flatMap(({ items }) => items) ?? [];
  if (rows.length === 0) return null;

  const columns: Column<RemovedTenant>[] = [
    { key: 'name', header: 'Tenant', render: ({ name }) => <strong>{name}</strong> },
    { key: 'slug', header: 'Slug', wide: true, render: ({ slug }) => <code className="soft">{slug}</code> },
    {
      key: 'removed',
      header: 'Removed',
      width: 120,
      render: ({ removed_at }) => <RelativeTime at={removed_at} />,
    },
    {
      key: 'data',
      header: 'Data',
      render: (tenant) => <Data tenant={tenant} />,
    },
    {
      key: 'acts',
      header: 'Actions',
      quiet: true,
      width: 110,
      render: (tenant) =>
        tenant.restorable && (
          <Button
            size="compact-sm"
            variant="default"
            loading={restore.isPending && restore.variables.slug === tenant.slug}
            onClick={() => restore.mutate(tenant)}
          >
            Restore
          </Button>
        ),
    },
  ];
  return (
    <Card flush title="Removed tenants">
      <DataTable label="Removed tenants" columns={columns} rows={rows} rowKey={({ slug }) => slug} />
      <ShowMore list={removed} rows={rows} noun="removed tenant" />
    </Card>
  );
}

function Data({ tenant: { erased_at, erase_after, erased_rows, restorable } }: { tenant: RemovedTenant }) {
  if (restorable) {
    return (
      <>
        erased <RelativeTime at={erase_after} />
      </>
    );
  }
  const rows = Object.values(erased_rows).reduce((sum, count) => sum + count, 0);
  const tables = Object.entries(erased_rows)
    .map(([table, count]) => `${table}: ${count}`)
    .join(', ');
  return (
    <span title={tables}>
      {plural(rows, 'row')} erased
      {erased_at ? (
        <>
          {' '}
          <RelativeTime at={erased_at} />
        </>
      ) : (
        ' so far'
      )}
    </span>
  );
}
