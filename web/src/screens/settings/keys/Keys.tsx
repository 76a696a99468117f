import { ActionIcon, Button, Menu } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import type { Key } from '~/api/types';
import { type Column, DataTable } from '~/components/DataTable';
import { IconBan, IconDots, IconKey, IconPlus, IconRefresh } from '~/components/icons';
import { Outcome } from '~/components/Outcome';
import { Card } from '~/components/Page';
import { Query } from '~/components/Query';
import { EmptyState } from '~/components/states';
import { RelativeTime, useNow } from '~/components/Time';
import { plural } from '~/domain/format';
import { keyLabel, keyState } from '~/domain/key';
import { useRole, useTenant } from '~/session';
import styles from '../Settings.module.css';
import { type Created, CreatedKey } from './CreatedKey';
import { NewKey } from './NewKey';
import { keysQuery } from './queries';
import { RevokeKey } from './RevokeKey';
import { RotateKey } from './RotateKey';

type Open = { act: 'new' } | { act: 'rotate' | 'revoke'; key: Key } | null;

/** API keys: their permissions, state and last use. */
export default function Keys() {
  const tenant = useTenant();
  const { own } = useRole();
  const keys = useQuery(keysQuery(tenant));
  const [open, setOpen] = useState<Open>(null);
  const [created, setCreated] = useState<Created | null>(null);
  const [all, setAll] = useState(false);
  const now = useNow();
  const close = () => setOpen(null);
  const labelOf = (key: Key) => keyLabel(key, keys.data ?? []);

  const columns: Column<Key>[] = [
    { key: 'name', header: 'Name', render: (key) => <strong>{labelOf(key)}</strong> },
    {
      key: 'id',
      header: 'Key',
      wide: true,
      render: ({ key_id }) => <code className="soft">slk_{key_id}_…</code>,
    },
    { key: 'may', header: 'Permissions', wide: true, render: ({ permissions }) => permissions.join(', ') },
    {
      key: 'used',
      header: 'Last used',
      width: 120,
      wide: true,
      render: ({ last_used_at: at }) => (at ? <RelativeTime at={at} /> : <span className="soft">Never</span>),
    },
    { key: 'state', header: 'State', width: 150, render: (key) => <State item={key} now={now} /> },
  ];
  if (own) {
    columns.push({
      key: 'acts',
      header: 'Actions',
      quiet: true,
      width: 60,
      render: (key) => (key.revoked_at ? null : <Acts item={key} label={labelOf(key)} onOpen={setOpen} />),
    });
  }

  const create = (
    <Button leftSection={<IconPlus size={15} aria-hidden />} onClick={() => setOpen({ act: 'new' })}>
      Create key
    </Button>
  );
  return (
    <>
      <Query query={keys}>
        {(items) => {
          const live = items.filter((key) => ['active', 'expiring'].includes(keyState(key, now)));
          const ended = items.length - live.length;
          if (items.length === 0)
            return (
              <Card>
                <Teach action={own && create} />
              </Card>
            );
          return (
            <Card
              flush
              title="API keys"
              lead="Services send a key with each check. Automation uses one to change rules."
              actions={own && create}
            >
              <DataTable
                label="API keys"
                columns={columns}
                rows={all ? items : live}
                rowKey={({ key_id }) => key_id}
              />
              {ended > 0 && (
                <Button variant="subtle" color="gray" m={8} onClick={() => setAll(!all)}>
                  {all ? 'Hide' : 'Show'} {plural(ended, 'inactive key')}
                </Button>
              )}
            </Card>
          );
        }}
      </Query>
      {open?.act === 'new' && <NewKey tenant={tenant} onClose={close} onCreated={setCreated} />}
      {open?.act === 'rotate' && (
        <RotateKey
          tenant={tenant}
          item={open.key}
          label={labelOf(open.key)}
          onClose={close}
          onCreated={setCreated}
        />
      )}
      <RevokeKey
        tenant={tenant}
        item={open?.act === 'revoke' ? open.key : null}
        label={open?.act === 'revoke' ? labelOf(open.key) : ''}
        onClose={close}
      />
      {created && <CreatedKey tenant={tenant} created={created} onClose={() => setCreated(null)} />}
    </>
  );
}

function Teach({ action }: { action: React.ReactNode }) {
  return (
    <EmptyState icon={<IconKey size={20} aria-hidden />} title="No API keys yet" action={action}>
      A service sends an API key with each check. The key identifies the tenant.
    </EmptyState>
  );
}

function State({ item, now }: { item: Key; now: number }) {
  switch (keyState(item, now)) {
    case 'revoked':
      return <Outcome tone="denied">Revoked</Outcome>;
    case 'expired':
      return <Outcome tone="denied">Expired</Outcome>;
    case 'expiring':
      return (
        <span className={styles.row}>
          <Outcome tone="degraded">Expires</Outcome>
          {item.expires_at && <RelativeTime at={item.expires_at} />}
        </span>
      );
    default:
      return <Outcome tone="allowed">Active</Outcome>;
  }
}

function Acts({ item, label, onOpen }: { item: Key; label: string; onOpen: (open: Open) => void }) {
  return (
    <Menu position="bottom-end">
      <Menu.Target>
        <ActionIcon aria-label={`Actions of ${label}`}>
          <IconDots size={16} />
        </ActionIcon>
      </Menu.Target>
      <Menu.Dropdown>
        <Menu.Item
          leftSection={<IconRefresh size={15} />}
          onClick={() => onOpen({ act: 'rotate', key: item })}
        >
          Rotate …
        </Menu.Item>
        <Menu.Item leftSection={<IconBan size={15} />} onClick={() => onOpen({ act: 'revoke', key: item })}>
          Revoke …
        </Menu.Item>
      </Menu.Dropdown>
    </Menu>
  );
}
