import { Button, NativeSelect } from '@mantine/core';
import { useInfiniteQuery, useQuery } from '@tanstack/react-query';
import { Link, useNavigate, useSearch } from '@tanstack/react-router';
import { rulesQuery } from '~/api/queries';
import type { Override, Rule } from '~/api/types';
import { type Column, DataTable } from '~/components/DataTable';
import { Ends } from '~/components/Ends';
import { FilterField } from '~/components/FilterField';
import { IconBolt } from '~/components/icons';
import { Card, Page } from '~/components/Page';
import { Query } from '~/components/Query';
import { EmptyState, LoadingLines } from '~/components/states';
import { plural } from '~/domain/format';
import { limitSentence } from '~/domain/rate';
import type { OverridesSearch } from '~/search';
import { useTenant } from '~/session';
import styles from './Overrides.module.css';
import { tenantOverridesQuery } from './queries';

/** Who has a limit of their own, on which rule, why, and until when. */
export default function Overrides() {
  const tenant = useTenant();
  const search: OverridesSearch = useSearch({ from: '/shell/t/$tenant/overrides' });
  const navigate = useNavigate({ from: '/t/$tenant/overrides' });
  const { data: rules = [] } = useQuery(rulesQuery(tenant));
  const set = (change: OverridesSearch) =>
    navigate({ search: (old) => ({ ...old, ...change }), resetScroll: false });
  const overridable = rules.filter(
    ({ rule_id, key_pattern }) => key_pattern.includes('user:{user_id}') || rule_id === search.rule,
  );

  return (
    <Page title="Overrides" lead="Users who have a limit of their own instead of a rule’s.">
      <search className={styles.find} aria-label="Filter overrides">
        <FilterField
          search
          className={styles.prefix}
          label="User id"
          placeholder="A user id, or how it begins"
          value={search.prefix}
          onChange={(prefix) => set({ prefix })}
        />
        <NativeSelect
          aria-label="Rule"
          value={search.rule ?? ''}
          data={[
            { value: '', label: 'Any rule' },
            ...overridable.map((rule) => ({ value: String(rule.rule_id), label: nameOf(rule) })),
          ]}
          onChange={({ currentTarget: { value } }) => set({ rule: value ? Number(value) : undefined })}
        />
        <NativeSelect
          aria-label="Ends"
          value={search.ends ?? ''}
          data={[
            { value: '', label: 'Any end' },
            { value: 'soon', label: 'Ending within 7 days' },
            { value: 'expired', label: 'Expired' },
          ]}
          onChange={({ currentTarget: { value } }) =>
            set({ ends: (value || undefined) as OverridesSearch['ends'] })
          }
        />
      </search>
      <List tenant={tenant} search={search} rules={rules} />
    </Page>
  );
}

interface ListProps {
  tenant: string;
  search: OverridesSearch;
  rules: Rule[];
}

function List({ tenant, search, rules }: ListProps) {
  const list = useInfiniteQuery(tenantOverridesQuery(tenant, search));
  const navigate = useNavigate();
  const columns: Column<Override>[] = [
    { key: 'user', header: 'User', render: ({ user_id }) => user_id },
    { key: 'rule', header: 'Rule', render: ({ rule_id }) => <RuleLink {...{ tenant, rules, rule_id }} /> },
    { key: 'limit', header: 'Limit', render: limitSentence },
    {
      key: 'reason',
      header: 'Reason',
      wide: true,
      render: ({ reason }) => <span title={reason}>{reason}</span>,
    },
    { key: 'ends', header: 'Ends', width: 120, render: (override) => <Ends override={override} /> },
  ];
  return (
    <Card flush>
      <Query query={list} loading={<LoadingLines />}>
        {({ pages }) => {
          const rows = pages.flatMap(({ items }) => items);
          if (rows.length === 0 && !list.hasNextPage) return <None tenant={tenant} search={search} />;
          return (
            <>
              <DataTable
                label="Overrides"
                columns={columns}
                rows={rows}
                rowKey={({ rule_id, user_id }) => `${rule_id}:${user_id}`}
                onOpen={({ user_id }) =>
                  navigate({ to: '/t/$tenant/users/$user', params: { tenant, user: user_id } })
                }
              />
              <footer className={styles.footer}>
                <span role="status">
                  {plural(rows.length, 'override')}
                  {list.hasNextPage ? ' so far' : ''}
                </span>
                {list.hasNextPage && (
                  <Button
                    variant="default"
                    loading={list.isFetchingNextPage}
                    onClick={() => list.fetchNextPage()}
                  >
                    Show more
                  </Button>
                )}
              </footer>
            </>
          );
        }}
      </Query>
    </Card>
  );
}

function RuleLink({ tenant, rules, rule_id }: { tenant: string; rules: Rule[]; rule_id: number }) {
  const rule = rules.find((one) => one.rule_id === rule_id);
  return (
    <Link to="/t/$tenant/rules/$rule" params={{ tenant, rule: String(rule_id) }}>
      <code>{rule ? nameOf(rule) : `rule ${rule_id}`}</code>
    </Link>
  );
}

function nameOf({ key_pattern, name, plan }: Rule): string {
  return [key_pattern, name, plan].filter(Boolean).join(' · ');
}

function None({ tenant, search: { prefix, rule, ends } }: { tenant: string; search: OverridesSearch }) {
  const icon = <IconBolt size={20} aria-hidden />;
  if (prefix || rule) {
    return (
      <EmptyState icon={icon} title="No overrides match">
        No override fits these filters.
      </EmptyState>
    );
  }
  if (ends) {
    return (
      <EmptyState
        icon={icon}
        title={ends === 'soon' ? 'No override ends within 7 days' : 'No override has expired'}
      >
        {ends === 'soon'
          ? 'Those that end soon are listed here, so that a customer can be asked before their limit falls back to the rule’s.'
          : 'An override that has ended changes nothing any more. It is listed here until somebody removes it.'}
      </EmptyState>
    );
  }
  return (
    <EmptyState
      icon={icon}
      title="No overrides"
      action={
        <Button
          variant="default"
          renderRoot={(props) => <Link {...props} to="/t/$tenant/users" params={{ tenant }} />}
        >
          Find a user
        </Button>
      }
    >
      An override gives one user a limit of their own for a rule: more for a customer’s migration week, less
      for one who hammers. It has a reason, and can end by itself. Make one on the user’s page.
    </EmptyState>
  );
}
