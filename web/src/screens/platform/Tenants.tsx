import { Button, Menu } from '@mantine/core';
import { useInfiniteQuery, useQueryClient } from '@tanstack/react-query';
import { useNavigate, useSearch } from '@tanstack/react-router';
import { useState } from 'react';
import { changed } from '~/api/changes';
import { api, etagOf } from '~/api/client';
import { pagesQuery, rowsOf } from '~/api/pages';
import { suspension } from '~/api/suspension';
import type { Tenant } from '~/api/types';
import { ConfirmAction } from '~/components/ConfirmAction';
import { actsColumn, timeColumn } from '~/components/columns';
import type { Column } from '~/components/DataTable';
import { FilterField } from '~/components/FilterField';
import { InShadow } from '~/components/InShadow';
import { IconBan, IconCheck, IconPlus, IconTenants, IconTrash } from '~/components/icons';
import { ListTable } from '~/components/ListTable';
import { Act, MoreMenu } from '~/components/MoreMenu';
import { Outcome } from '~/components/Outcome';
import { Card, Page } from '~/components/Page';
import { EmptyState } from '~/components/states';
import { TypeToRemove } from '~/components/TypeToRemove';
import { done } from '~/components/toast';
import type { FindSearch } from '~/search';
import { NewTenant } from './NewTenant';
import styles from './Platform.module.css';
import { RemovedTenants } from './RemovedTenants';

type Open = { act: 'new' } | { act: 'suspend' | 'remove'; tenant: Tenant } | null;

export default function Tenants() {
  const { q } = useSearch({ strict: false }) as FindSearch;
  const navigate = useNavigate();
  const queries = useQueryClient();
  const [open, setOpen] = useState<Open>(null);
  const close = () => setOpen(null);
  const tenants = useInfiniteQuery({
    ...pagesQuery(['tenants', 'found', q], (cursor, signal) =>
      api.get('/api/v1/tenants', { q, limit: 100, cursor, signal }),
    ),
    select: rowsOf<Tenant>,
  });

  const refetch = (slug: string) => changed(queries, slug, 'tenant');

  async function remove(tenant: Tenant) {
    await api.delete('/api/v1/tenants/{tenant}', { tenant: tenant.slug, etag: etagOf(tenant) });
    await refetch(tenant.slug);
    done(`Tenant ${tenant.name} removed`);
  }

  const columns: Column<Tenant>[] = [
    { key: 'name', header: 'Tenant', render: ({ name }) => <strong>{name}</strong> },
    { key: 'slug', header: 'Slug', render: ({ slug }) => <code className="soft">{slug}</code> },
    { key: 'plan', header: 'Default plan', wide: true, render: ({ default_plan }) => default_plan ?? '–' },
    {
      key: 'state',
      header: 'State',
      width: 132,
      render: ({ suspended, enforcement }) => {
        if (suspended) return <Outcome tone="denied">Suspended</Outcome>;
        return enforcement === 'shadow' ? <InShadow /> : <Outcome tone="allowed">Active</Outcome>;
      },
    },
    timeColumn('created', 'Created', ({ created_at }) => created_at),
    actsColumn(60, (tenant) => <Acts tenant={tenant} onOpen={setOpen} />),
  ];
  const acting = open?.act === 'suspend' ? open.tenant : null;
  const words = acting && suspension(acting);
  const create = (
    <Button leftSection={<IconPlus size={15} aria-hidden />} onClick={() => setOpen({ act: 'new' })}>
      New tenant
    </Button>
  );

  return (
    <Page title="Tenants" actions={create}>
      <Card flush>
        <div className={styles.find}>
          <FilterField
            search
            label="Find a tenant"
            placeholder="Name or slug"
            value={q}
            onChange={(text) => navigate({ to: '.', search: { q: text }, replace: true })}
          />
        </div>
        <ListTable
          list={tenants}
          noun="tenant"
          label="Tenants"
          columns={columns}
          rowKey={({ slug }) => slug}
          to={({ slug }) => ({ to: '/t/$tenant/overview', params: { tenant: slug } })}
          none={
            q ? (
              <EmptyState title="No results" />
            ) : (
              <EmptyState icon={IconTenants} title="No tenants yet" action={create}>
                A tenant is a product or team with its own rules.
              </EmptyState>
            )
          }
        />
      </Card>
      <RemovedTenants onRestored={refetch} />
      {open?.act === 'new' && <NewTenant onClose={close} onCreated={refetch} />}
      {open?.act === 'remove' && (
        <TypeToRemove
          title={`Remove ${open.tenant.name}?`}
          lead="Its keys are refused at once. You can restore it for a while; then everything is erased for good."
          verb="Remove tenant"
          word={open.tenant.slug}
          onClose={close}
          remove={() => remove(open.tenant)}
        />
      )}
      <ConfirmAction
        opened={acting !== null}
        onClose={close}
        title={words?.title ?? ''}
        effect={words?.effect}
        verb={words?.verb ?? ''}
        destructive={acting?.suspended === false}
        action={async () => {
          if (!acting || !words) return;
          await words.act();
          await refetch(acting.slug);
          done(`${acting.name} is ${acting.suspended ? 'active again' : 'suspended'}`);
        }}
      />
    </Page>
  );
}

function Acts({ tenant, onOpen }: { tenant: Tenant; onOpen: (open: Open) => void }) {
  return (
    <MoreMenu label={`Actions of ${tenant.name}`}>
      <Act icon={tenant.suspended ? IconCheck : IconBan} onClick={() => onOpen({ act: 'suspend', tenant })}>
        {tenant.suspended ? 'Resume …' : 'Suspend …'}
      </Act>
      {tenant.suspended ? (
        <Act icon={IconTrash} onClick={() => onOpen({ act: 'remove', tenant })}>
          Remove …
        </Act>
      ) : (
        <Menu.Label>Suspend the tenant before you remove it</Menu.Label>
      )}
    </MoreMenu>
  );
}
