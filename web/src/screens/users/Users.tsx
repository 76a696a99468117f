import { Button, Group } from '@mantine/core';
import { useInfiniteQuery, useQuery } from '@tanstack/react-query';
import { Link, useNavigate, useSearch } from '@tanstack/react-router';
import { useState } from 'react';
import { exportAddress } from '~/api/exports';
import { plansQuery } from '~/api/queries';
import { topQuery } from '~/api/traffic';
import type { Assignment } from '~/api/types';
import { knownUsersQuery } from '~/api/user';
import { ChoiceField } from '~/components/ChoiceField';
import type { Column } from '~/components/DataTable';
import { FilterField } from '~/components/FilterField';
import { IconDownload, IconUpload, IconUsers } from '~/components/icons';
import { LinkButton } from '~/components/LinkButton';
import { ListTable } from '~/components/ListTable';
import { Num } from '~/components/Num';
import { Card, Page } from '~/components/Page';
import { Query } from '~/components/Query';
import { EmptyState, LoadingLines } from '~/components/states';
import { RelativeTime } from '~/components/Time';
import { clockTime } from '~/domain/format';
import { isLowerBound } from '~/domain/group';
import { namedSpan } from '~/domain/range';
import { useExport } from '~/features/exports/useExport';
import { headings } from '~/headings';
import type { UsersSearch } from '~/search';
import { useRole, useTenant } from '~/session';
import { ImportUsers } from './ImportUsers';
import { usersQuery } from './queries';
import { UsageFiles } from './Usage';
import styles from './Users.module.css';

const day = namedSpan('24h');

export default function Users() {
  const tenant = useTenant();
  const { edit } = useRole();
  const search: UsersSearch = useSearch({ from: '/shell/t/$tenant/users' });
  const navigate = useNavigate({ from: '/t/$tenant/users' });
  const { data: plans = [] } = useQuery(plansQuery(tenant));
  const [importing, setImporting] = useState(false);
  const { start, isStarting, dialog } = useExport(tenant);
  const set = (change: UsersSearch) => navigate({ search: (old) => ({ ...old, ...change }), resetScroll: false });

  return (
    <Page
      {...headings.users}
      actions={
        <>
          <Button
            variant="default"
            leftSection={<IconDownload size={14} />}
            loading={isStarting}
            onClick={() => start(exportAddress(tenant, 'users/export', { prefix: search.prefix, plan: search.plan }))}
          >
            Export plans
          </Button>
          {edit && (
            <Button leftSection={<IconUpload size={14} />} onClick={() => setImporting(true)}>
              Import plans
            </Button>
          )}
        </>
      }
    >
      <search className={styles.find} aria-label="Find a user">
        <FilterField
          search
          className={styles.prefix}
          label="User id"
          placeholder="User id or prefix"
          value={search.prefix}
          onChange={(prefix) => set({ prefix })}
        />
        <ChoiceField
          aria-label="Plan"
          value={search.plan ?? ''}
          data={[{ value: '', label: 'Any plan' }, ...plans.map(({ name }) => name)]}
          onChange={(plan) => set({ plan: plan || undefined })}
        />
        {search.prefix && <Found tenant={tenant} prefix={search.prefix} />}
      </search>
      <div className={styles.columns}>
        <Assigned tenant={tenant} search={search} edit={edit} onImport={() => setImporting(true)} />
        <div className={styles.stack}>
          <Limited tenant={tenant} />
          <UsageFiles tenant={tenant} onExport={start} />
        </div>
      </div>
      {dialog}
      {importing && <ImportUsers tenant={tenant} onClose={() => setImporting(false)} />}
    </Page>
  );
}

function Found({ tenant, prefix }: { tenant: string; prefix: string }) {
  const known = useQuery(knownUsersQuery(tenant, prefix));
  const ids = (known.data ?? []).map(({ user_id }) => user_id).filter((id) => id.startsWith(prefix));
  const open = (id: string, label: string) => (
    <LinkButton key={id} variant="default" to="/t/$tenant/users/$user" params={{ tenant, user: id }}>
      {label}
    </LinkButton>
  );
  return (
    <>
      {ids.map((id) => open(id, `Open user ${id}`))}
      {!ids.includes(prefix) &&
        !known.isPending &&
        !known.isPlaceholderData &&
        open(prefix, `Open user ${prefix} (not seen recently)`)}
    </>
  );
}

interface AssignedProps {
  tenant: string;
  search: UsersSearch;
  edit: boolean;
  onImport: () => void;
}

const columns: Column<Assignment>[] = [
  { key: 'user', header: 'User', render: ({ user_id }) => user_id },
  { key: 'plan', header: 'Plan', width: '40%', render: ({ plan }) => plan },
];

function Assigned({ tenant, search, edit, onImport }: AssignedProps) {
  const list = useInfiniteQuery(usersQuery(tenant, search));
  return (
    <Card title="Assigned plans" flush>
      <ListTable
        list={list}
        noun="user"
        label="Users with an assigned plan"
        columns={columns}
        rowKey={({ user_id }) => user_id}
        to={({ user_id }) => ({ to: '/t/$tenant/users/$user', params: { tenant, user: user_id } })}
        none={<NoUsers {...{ search, edit, onImport }} />}
      />
    </Card>
  );
}

function NoUsers({ search, edit, onImport }: Omit<AssignedProps, 'tenant'>) {
  const icon = IconUsers;
  if (search.prefix || search.plan) {
    return (
      <EmptyState icon={icon} title="No results">
        {search.prefix ? 'No user with this prefix has an assigned plan.' : 'No user is assigned to this plan.'}
      </EmptyState>
    );
  }
  return (
    <EmptyState
      icon={icon}
      title="All users are on the default plan"
      action={
        edit && (
          <Button variant="default" onClick={onImport}>
            Import plans
          </Button>
        )
      }
    />
  );
}

function Limited({ tenant }: { tenant: string }) {
  const top = useQuery(topQuery(tenant, day, 'user', 10));
  return (
    <Card title="Limited in the last 24 hours" flush>
      <Query query={top} loading={<LoadingLines />}>
        {({ items, until, ...coverage }) =>
          items.length === 0 ? (
            <p className={styles.none}>No denials.</p>
          ) : (
            <>
              <ol className={styles.limited}>
                {items.map(({ value, denied, last_at }) => (
                  <li key={value}>
                    <Link to="/t/$tenant/users/$user" params={{ tenant, user: value }}>
                      {value}
                    </Link>
                    <Group gap={12} className="soft">
                      {last_at && <RelativeTime at={last_at} />}
                      <span className={styles.denied}>
                        {isLowerBound(coverage) && 'at least '}
                        <Num value={denied} unit="denied" />
                      </span>
                    </Group>
                  </li>
                ))}
              </ol>
              <p className={styles.asOf}>As of {clockTime(Date.parse(until))}.</p>
            </>
          )
        }
      </Query>
    </Card>
  );
}
