import { Button, Menu } from '@mantine/core';
import { useInfiniteQuery, useQueryClient } from '@tanstack/react-query';
import { useNavigate, useSearch } from '@tanstack/react-router';
import { useState } from 'react';
import { changed } from '~/api/changes';
import { api } from '~/api/client';
import { pagesQuery, rowsOf } from '~/api/pages';
import { suspension } from '~/api/suspension';
import type { Tenant } from '~/api/types';
import { ConfirmAction } from '~/components/ConfirmAction';
import type { Column } from '~/components/DataTable';
import { FilterField } from '~/components/FilterField';
import { InShadow } from '~/components/InShadow';
import { IconBan, IconCheck, IconPlus, IconTenants, IconTrash } from '~/components/icons';
import { ListTable } from '~/components/ListTable';
import { Act, MoreMenu } from '~/components/MoreMenu';
import { Outcome } from '~/components/Outcome';
import { Card, Page } from '~/components/Page';
import { EmptyState } from '~/components/states';
import { RelativeTime } from '~/components/Time';
import { done } from '~/components/toast';
import type { FindSearch } from '~/search';
import { NewTenant } from './NewTenant';
import styles from './Platform.module.css';
import { RemovedTenants } from './RemovedTenants';
import { RemoveTenant } from './RemoveTenant';

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
    {
      key: 'created',
      header: 'Created',
      width: 120,
      wide: true,
      render: ({ created_at }) => <RelativeTime at={created_at} />,
    },
    {
      key: 'acts',
      header: 'Actions',
      quiet: true,
      width: 60,
      render: (tenant) => <Acts tenant={tenant} onOpen={setOpen} />,
    },
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
          none={q ? <Nothing q={q} /> : <Teach action={create} />}
        />
      </Card>
      <RemovedTenants onRestored={refetch} />
      {open?.act === 'new' && <NewTenant onClose={close} onCreated={refetch} />}
      {open?.act === 'remove' && <RemoveTenant tenant={open.tenant} onClose={close} onRemoved={refetch} />}
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
      <Menu.Item
        leftSection={tenant.suspended ? <IconCheck size={15} /> : <IconBan size={15} />}
        onClick={() => onOpen({ act: 'suspend', tenant })}
      >
        {tenant.suspended ? 'Resume …' : 'Suspend …'}
      </Menu.Item>
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

function Nothing({ q }: { q: string }) {
  return <EmptyState title="No results">No name or slug contains “{q}”.</EmptyState>;
}

function Teach({ action }: { action: React.ReactNode }) {
  return (
    <EmptyState icon={IconTenants} title="No tenants yet" action={action}>
      A tenant is a product or team with its own rules.
    </EmptyState>
  );
}
