import { ActionIcon, Menu } from '@mantine/core';
import { useInfiniteQuery, useQueryClient } from '@tanstack/react-query';
import { useNavigate, useSearch } from '@tanstack/react-router';
import { useState } from 'react';
import { api, etagOf } from '~/api/client';
import type { Account } from '~/api/types';
import { ConfirmAction } from '~/components/ConfirmAction';
import { type Column, DataTable } from '~/components/DataTable';
import { FilterField } from '~/components/FilterField';
import { IconBan, IconCheck, IconDots, IconLogout, IconTenants } from '~/components/icons';
import { NotVerified } from '~/components/NotVerified';
import { Outcome } from '~/components/Outcome';
import { Card, Page } from '~/components/Page';
import { Query } from '~/components/Query';
import { ShowMore } from '~/components/ShowMore';
import { EmptyState, NoPermission } from '~/components/states';
import { RelativeTime } from '~/components/Time';
import { done } from '~/components/toast';
import type { FindSearch } from '~/search';
import { useSession } from '~/session';
import { type AccountChange, changes } from './accountChanges';
import styles from './Platform.module.css';

const pageSize = 100;

export default function Accounts() {
  const { account } = useSession();
  if (!account.platform_admin) {
    return (
      <Page title="Accounts">
        <NoPermission need="platform">This requires a platform admin.</NoPermission>
      </Page>
    );
  }
  return <AccountList self={account.account_id} />;
}

function AccountList({ self }: { self: string }) {
  const { q } = useSearch({ strict: false }) as FindSearch;
  const navigate = useNavigate();
  const queries = useQueryClient();
  const [asking, setAsking] = useState<AccountChange | null>(null);
  const accounts = useInfiniteQuery({
    queryKey: ['accounts', q],
    initialPageParam: undefined as string | undefined,
    queryFn: ({ pageParam: cursor, signal }) => api.get('/api/v1/accounts', { q, limit: pageSize, cursor, signal }),
    getNextPageParam: (page) => page.next_cursor ?? undefined,
  });

  const columns: Column<Account>[] = [
    {
      key: 'who',
      header: 'Account',
      render: (account) => (
        <>
          <strong>{account.name || account.email}</strong>
          {account.account_id === self && <span className="soft"> (you)</span>} <NotVerified account={account} />
        </>
      ),
    },
    { key: 'email', header: 'E-mail', wide: true, render: ({ email }) => email },
    {
      key: 'role',
      header: 'Role',
      width: 140,
      render: ({ platform_admin, disabled }) =>
        disabled ? (
          <Outcome tone="denied">Disabled</Outcome>
        ) : platform_admin ? (
          'Platform admin'
        ) : (
          <span className="soft">–</span>
        ),
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
      render: (account) => <Acts account={account} onAsk={setAsking} />,
    },
  ];

  async function act() {
    if (!asking) return;
    const { account, patch } = asking;
    const path = { account_id: account.account_id };
    await (patch
      ? api.patch('/api/v1/accounts/{account_id}', { ...path, etag: etagOf(account), body: patch })
      : api.delete('/api/v1/accounts/{account_id}/sessions', path));
    await queries.invalidateQueries({ queryKey: ['accounts'] });
    if (account.account_id === self) await queries.invalidateQueries({ queryKey: ['session'] });
    done(asking.done);
  }

  return (
    <Page title="Accounts">
      <Card flush>
        <div className={styles.find}>
          <FilterField
            search
            label="Find an account"
            placeholder="Name or e-mail"
            value={q}
            onChange={(text) => navigate({ to: '.', search: { q: text }, replace: true })}
          />
        </div>
        <Query query={accounts}>
          {({ pages }) => {
            const rows = pages.flatMap(({ items }) => items);
            return rows.length === 0 ? (
              <EmptyState title="No results">No name or e-mail contains “{q}”.</EmptyState>
            ) : (
              <>
                <DataTable label="Accounts" columns={columns} rows={rows} rowKey={({ account_id }) => account_id} />
                <ShowMore list={accounts} rows={rows} noun="account" />
              </>
            );
          }}
        </Query>
      </Card>
      <ConfirmAction
        opened={asking !== null}
        onClose={() => setAsking(null)}
        title={asking?.title ?? ''}
        effect={asking?.effect}
        verb={asking?.verb ?? ''}
        destructive={asking?.destructive}
        action={act}
      />
    </Page>
  );
}

function Acts({ account, onAsk }: { account: Account; onAsk: (change: AccountChange) => void }) {
  const { admin, access, proof, sessions } = changes(account);
  return (
    <Menu position="bottom-end">
      <Menu.Target>
        <ActionIcon aria-label={`Actions of ${account.email}`}>
          <IconDots size={16} />
        </ActionIcon>
      </Menu.Target>
      <Menu.Dropdown>
        {account.proven ? (
          <Menu.Item leftSection={<IconTenants size={15} />} onClick={() => onAsk(admin)}>
            {admin.verb} …
          </Menu.Item>
        ) : (
          <Menu.Item leftSection={<IconCheck size={15} />} onClick={() => onAsk(proof)}>
            {proof.verb} …
          </Menu.Item>
        )}
        {!account.disabled && (
          <Menu.Item leftSection={<IconLogout size={15} />} onClick={() => onAsk(sessions)}>
            {sessions.verb} …
          </Menu.Item>
        )}
        <Menu.Item
          leftSection={account.disabled ? <IconCheck size={15} /> : <IconBan size={15} />}
          onClick={() => onAsk(access)}
        >
          {access.verb} …
        </Menu.Item>
      </Menu.Dropdown>
    </Menu>
  );
}
