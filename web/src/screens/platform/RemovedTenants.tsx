import { Button } from '@mantine/core';
import { useInfiniteQuery, useMutation, useQueryClient } from '@tanstack/react-query';
import { api } from '~/api/client';
import { pagesQuery, rowsOf } from '~/api/pages';
import type { RemovedTenant } from '~/api/types';
import { actsColumn, timeColumn } from '~/components/columns';
import type { Column } from '~/components/DataTable';
import { ListTable } from '~/components/ListTable';
import { Card } from '~/components/Page';
import { RelativeTime } from '~/components/Time';
import { done, failed } from '~/components/toast';
import { plural } from '~/domain/format';

const removedKey = ['removed tenants'] as const;

export function RemovedTenants({ onRestored }: { onRestored: (slug: string) => Promise<void> }) {
  const queries = useQueryClient();
  const removed = useInfiniteQuery({
    ...pagesQuery(removedKey, (cursor, signal) => api.get('/api/v1/removed-tenants', { limit: 20, cursor, signal })),
    select: rowsOf<RemovedTenant>,
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
  if (!removed.data?.length) return null;

  const columns: Column<RemovedTenant>[] = [
    { key: 'name', header: 'Tenant', render: ({ name }) => <strong>{name}</strong> },
    { key: 'slug', header: 'Slug', wide: true, render: ({ slug }) => <code className="soft">{slug}</code> },
    timeColumn('removed', 'Removed', ({ removed_at }) => removed_at, { wide: false }),
    { key: 'data', header: 'Data', render: (tenant) => <Data tenant={tenant} /> },
    actsColumn(
      110,
      (tenant) =>
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
    ),
  ];
  return (
    <Card flush title="Removed tenants">
      <ListTable
        list={removed}
        noun="removed tenant"
        label="Removed tenants"
        columns={columns}
        rowKey={({ slug }) => slug}
        none={null}
      />
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
