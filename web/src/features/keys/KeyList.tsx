import { Button } from '@mantine/core';
import type { UseQueryResult } from '@tanstack/react-query';
import { useState } from 'react';
import type { Key } from '~/api/types';
import { type Column, DataTable } from '~/components/DataTable';
import { IconAlert, IconBan, IconKey, IconPlus, IconRefresh } from '~/components/icons';
import { Act, MoreMenu } from '~/components/MoreMenu';
import { Outcome } from '~/components/Outcome';
import { Card } from '~/components/Page';
import { Query } from '~/components/Query';
import { EmptyState } from '~/components/states';
import { RelativeTime, useNow } from '~/components/Time';
import { plural } from '~/domain/format';
import { expiresSoon, keyLabel, keyState, soonDays } from '~/domain/key';
import { type Created, CreatedKey } from './CreatedKey';
import styles from './keys.module.css';
import { LeftBehind } from './LeftBehind';
import { NewKey } from './NewKey';
import { RevokeKey } from './RevokeKey';
import { RotateKey } from './RotateKey';
import type { KeyRoom } from './room';

type Open = { act: 'new' } | { act: 'rotate' | 'revoke'; key: Key } | null;

interface Props {
  room: KeyRoom;
  keys: UseQueryResult<Key[]>;
  own: boolean;
  title: string;
  lead?: string;
  empty: string;
}

export function KeyList({ room, keys, own, title, lead, empty }: Props) {
  const [open, setOpen] = useState<Open>(null);
  const [created, setCreated] = useState<Created | null>(null);
  const [all, setAll] = useState(false);
  const now = useNow();
  const close = () => setOpen(null);
  const labelOf = (key: Key) => keyLabel(key, keys.data ?? []);

  const columns: Column<Key>[] = [
    {
      key: 'name',
      header: 'Name',
      wraps: true,
      render: (key) => (
        <>
          <strong>{labelOf(key)}</strong>
          <div>
            <code className="soft">slk_{key.key_id}_…</code>
          </div>
        </>
      ),
    },
    {
      key: 'may',
      header: 'Permissions',
      under: true,
      wraps: true,
      width: '22%',
      render: (key) => <May item={key} />,
    },
    { key: 'by', header: 'Created by', under: true, wraps: true, render: (key) => <Creator item={key} /> },
    {
      key: 'used',
      header: 'Last used',
      width: 100,
      under: true,
      render: ({ last_used_at: at }) => (at ? <RelativeTime at={at} /> : <span className="soft">Never</span>),
    },
    {
      key: 'state',
      header: 'State',
      width: 116,
      wraps: true,
      render: (key) => <State item={key} now={now} />,
    },
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
          const left = live.filter((key) => key.creator_left && !key.kept_at);
          const ended = items.length - live.length;
          if (items.length === 0)
            return (
              <Card>
                <EmptyState
                  icon={IconKey}
                  title={`No ${title.toLowerCase().replace('api', 'API')} yet`}
                  action={own && create}
                >
                  {empty}
                </EmptyState>
              </Card>
            );
          return (
            <Card flush title={title} lead={lead} actions={own && create}>
              <Expiring keys={live} now={now} labelOf={labelOf} />
              {left.length > 0 && (
                <LeftBehind
                  room={room}
                  keys={left}
                  own={own}
                  labelOf={labelOf}
                  onRevoke={(key) => setOpen({ act: 'revoke', key })}
                />
              )}
              <DataTable label={title} columns={columns} rows={all ? items : live} rowKey={({ key_id }) => key_id} />
              {ended > 0 && (
                <Button variant="subtle" color="gray" m={8} onClick={() => setAll(!all)}>
                  {all ? 'Hide' : 'Show'} {plural(ended, 'inactive key')}
                </Button>
              )}
            </Card>
          );
        }}
      </Query>
      {open?.act === 'new' && <NewKey room={room} onClose={close} onCreated={setCreated} />}
      {open?.act === 'rotate' && (
        <RotateKey room={room} item={open.key} label={labelOf(open.key)} onClose={close} onCreated={setCreated} />
      )}
      <RevokeKey
        room={room}
        item={open?.act === 'revoke' ? open.key : null}
        label={open?.act === 'revoke' ? labelOf(open.key) : ''}
        onClose={close}
      />
      {created && (
        <CreatedKey
          tenant={room.tenant}
          created={created}
          used={!!keys.data?.find(({ key_id }) => key_id === created.key.key_id)?.last_used_at}
          onClose={() => setCreated(null)}
        />
      )}
    </>
  );
}

function Expiring({ keys, now, labelOf }: { keys: Key[]; now: number; labelOf: (key: Key) => string }) {
  const soon = keys.filter((key) => expiresSoon(key, now));
  if (soon.length === 0) return null;
  return (
    <p className={styles.notice} role="status">
      <IconAlert size={15} aria-hidden />
      {plural(soon.length, 'key')} will expire within {soonDays} days: {soon.map(labelOf).join(', ')}. Rotate what is
      still in use.
    </p>
  );
}

function May({ item }: { item: Key }) {
  return (
    <>
      {item.permissions.join(', ')}
      {item.networks.length > 0 && <div className="soft">from {item.networks.join(', ')}</div>}
    </>
  );
}

function Creator({ item }: { item: Key }) {
  if (!item.created_by) return <span className="soft">Unknown</span>;
  return (
    <>
      {item.created_by.name || item.created_by.kind}
      {item.creator_left && <div className="soft">has left{item.kept_at && '; kept'}</div>}
    </>
  );
}

function State({ item, now }: { item: Key; now: number }) {
  switch (keyState(item, now)) {
    case 'revoked':
      return <Outcome tone="neutral">Revoked</Outcome>;
    case 'expired':
      return <Outcome tone="neutral">Expired</Outcome>;
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
    <MoreMenu label={`Actions of ${label}`}>
      <Act icon={IconRefresh} onClick={() => onOpen({ act: 'rotate', key: item })}>
        Rotate …
      </Act>
      <Act icon={IconBan} onClick={() => onOpen({ act: 'revoke', key: item })}>
        Revoke …
      </Act>
    </MoreMenu>
  );
}
