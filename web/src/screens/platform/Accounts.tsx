import { useInfiniteQuery, useQueryClient } from '@tanstack/react-query';
import { useNavigate, useSearch } from '@tanstack/react-router';
import { useState } from 'react';
import { api, etagOf } from '~/api/client';
import { pagesQuery, rowsOf } from '~/api/pages';
import type { Account } from '~/api/types';
import { ConfirmAction } from '~/components/ConfirmAction';
import { actsColumn, timeColumn } from '~/components/columns';
import type { Column } from '~/components/DataTable';
import { FilterField } from '~/components/FilterField';
import { IconBan, IconCheck, IconLogout, IconTenants } from '~/components/icons';
import { ListTable } from '~/components/ListTable';
import { Act, MoreMenu } from '~/components/MoreMenu';
import { NotVerified } from '~/components/NotVerified';
import { Outcome } from '~/components/Outcome';
import { Card, Page } from '~/components/Page';
import { EmptyState } from '~/components/states';
import { done } from '~/components/toast';
import type { FindSearch } from '~/search';
import { useSession } from '~/session';
import { type AccountChange, changes } from './accountChanges';
import styles from './Platform.module.css';

export default function Accounts() {
  const self = useSession().account.account_id;
  const { q } = useSearch({ strict: false }) as FindSearch;
  const navigate = useNavigate();
  const queries = useQueryClient();
  const [asking, setAsking] = useState<AccountChange | null>(null);
  const accounts = useInfiniteQuery({
    ...pagesQuery(['accounts', q], (cursor, signal) => api.get('/api/v1/accounts', { q, limit: 100, cursor, signal })),
    select: rowsOf<Account>,
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
    timeColumn('created', 'Created', ({ created_at }) => created_at),
    actsColumn(60, (account) => <Acts account={account} onAsk={setAsking} />),
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
        <ListTable
          list={accounts}
          noun="account"
          label="Accounts"
          columns={columns}
          rowKey={({ account_id }) => account_id}
          none={<EmptyState title="No results" />}
        />
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
    <MoreMenu label={`Actions of ${account.email}`}>
      {account.proven ? (
        <Act icon={IconTenants} onClick={() => onAsk(admin)}>
          {admin.verb} …
        </Act>
      ) : (
        <Act icon={IconCheck} onClick={() => onAsk(proof)}>
          {proof.verb} …
        </Act>
      )}
      {!account.disabled && (
        <Act icon={IconLogout} onClick={() => onAsk(sessions)}>
          {sessions.verb} …
        </Act>
      )}
      <Act icon={account.disabled ? IconCheck : IconBan} onClick={() => onAsk(access)}>
        {access.verb} …
      </Act>
    </MoreMenu>
  );
}
