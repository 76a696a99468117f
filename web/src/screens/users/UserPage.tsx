import { Button } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { Link, useParams, useSearch } from '@tanstack/react-router';
import { useState } from 'react';
import type { Tagged } from '~/api/client';
import { rulesQuery } from '~/api/queries';
import type { User } from '~/api/types';
import { DataTable } from '~/components/DataTable';
import { IconBolt } from '~/components/icons';
import { Outcome } from '~/components/Outcome';
import { Card, Page } from '~/components/Page';
import { Query } from '~/components/Query';
import { here, usePanel } from '~/components/usePanel';
import { violationColumns } from '~/screens/violations/columns';
import { ViolationPanel } from '~/screens/violations/Panel';
import type { UserSearch } from '~/search';
import { useRole, useTenant } from '~/session';
import { Buckets } from './Buckets';
import { ChangePlan } from './ChangePlan';
import { Overrides } from './Overrides';
import { userQuery } from './queries';
import { Raise } from './Raise';
import { raisableRules, ruleToRaise } from './raisable';
import styles from './Users.module.css';

/** One user: the plan, the buckets as they stand, the overrides, what was denied lately. */
export default function UserPage() {
  const tenant = useTenant();
  const { user: id } = useParams({ from: '/shell/t/$tenant/users/$user' });
  const search: UserSearch = useSearch({ from: '/shell/t/$tenant/users/$user' });
  const { edit } = useRole();
  const user = useQuery(userQuery(tenant, id));
  const { data: rules = [] } = useQuery(rulesQuery(tenant));
  const [changing, setChanging] = useState<Tagged<User> | null>(null);
  const raisable = user.data ? raisableRules(rules, user.data.value) : [];

  const openViolation = usePanel<string>('open');
  const raise = usePanel<number>('raise');

  return (
    <Page
      title={`User ${id}`}
      above={
        <Link to="/t/$tenant/users" params={{ tenant }}>
          Users
        </Link>
      }
      beside={user.data && <PlanOf user={user.data.value} />}
      actions={
        edit &&
        user.data && (
          <>
            <Button variant="default" onClick={() => setChanging(user.data)}>
              Change plan
            </Button>
            <Button
              leftSection={<IconBolt size={15} />}
              disabled={raisable.length === 0}
              onClick={() => raise(ruleToRaise(raisable, user.data.value))}
            >
              Override a limit
            </Button>
          </>
        )
      }
    >
      <Query query={user}>
        {({ value }) => (
          <>
            <Buckets tenant={tenant} user={id} edit={edit} onRaise={raise} />
            <Overrides
              tenant={tenant}
              user={id}
              overrides={value.overrides}
              hasMore={value.has_more_overrides}
              rules={rules}
              edit={edit}
              onEdit={raise}
            />
            <Denials tenant={tenant} user={value} open={search.open} onOpen={openViolation} />
            {edit && search.raise !== undefined && raisable.length > 0 && (
              <Raise
                tenant={tenant}
                user={value}
                rules={raisable}
                rule={search.raise}
                onClose={() => raise(undefined)}
              />
            )}
          </>
        )}
      </Query>
      {changing && <ChangePlan tenant={tenant} user={changing} onClose={() => setChanging(null)} />}
    </Page>
  );
}

function PlanOf({ user: { plan, plan_source } }: { user: User }) {
  if (plan === null) return <Outcome tone="neutral">on no plan</Outcome>;
  return (
    <Outcome tone="neutral">
      on {plan}
      {plan_source === 'tenant' && ', the default'}
    </Outcome>
  );
}

interface DenialsProps {
  tenant: string;
  user: User;
  open: string | undefined;
  onOpen: (id: string | undefined) => void;
}

function Denials({ tenant, user: { user_id, recent_violations }, open, onOpen }: DenialsProps) {
  return (
    <Card
      title="Recent denials"
      lead="And what shadow rules would have denied."
      flush
      actions={
        recent_violations.length > 0 && (
          <Link to="/t/$tenant/violations" params={{ tenant }} search={{ user: user_id, range: '24h' }}>
            All violations of this user
          </Link>
        )
      }
    >
      {recent_violations.length === 0 ? (
        <p className={styles.none}>None. This user was not limited lately.</p>
      ) : (
        <DataTable
          label="Recent denials"
          columns={violationColumns('who')}
          rows={recent_violations}
          rowKey={({ violation_id }) => violation_id}
          open={open}
          to={({ violation_id }) => here({ open: violation_id })}
          onOpen={({ violation_id }) => onOpen(violation_id)}
        />
      )}
      <ViolationPanel tenant={tenant} id={open} rows={recent_violations} onOpen={onOpen} />
    </Card>
  );
}
