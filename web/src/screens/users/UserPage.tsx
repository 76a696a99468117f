import { Button } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { Link, useParams, useSearch } from '@tanstack/react-router';
import { useState } from 'react';
import { api, type Tagged } from '~/api/client';
import { userDataAddress } from '~/api/exports';
import { rulesQuery } from '~/api/queries';
import type { Rule, User } from '~/api/types';
import { planOfChecks, userQuery } from '~/api/user';
import { CopyLink } from '~/components/CopyLink';
import { DataTable } from '~/components/DataTable';
import { IconBolt, IconDownload, IconTrash } from '~/components/icons';
import { Act, MoreMenu } from '~/components/MoreMenu';
import { Outcome } from '~/components/Outcome';
import { Card, Page } from '~/components/Page';
import { Query } from '~/components/Query';
import { TimeRange, useTimeRange } from '~/components/TimeRange';
import { TypeToRemove } from '~/components/TypeToRemove';
import { here, usePanel } from '~/components/usePanel';
import { Crossings } from '~/features/crossings/Crossings';
import { useExport } from '~/features/exports/useExport';
import { OverrideDialog } from '~/features/overrides/OverrideDialog';
import { OverrideTable } from '~/features/overrides/OverrideTable';
import { denyingRule, overridableRules } from '~/features/overrides/overridable';
import { BlockAddress } from '~/features/temporary/BlockAddress';
import { GroupMenu } from '~/features/temporary/GroupMenu';
import { violationColumns } from '~/features/violations/columns';
import { ViolationPanel } from '~/features/violations/ViolationPanel';
import type { UserSearch } from '~/search';
import { useRole, useTenant } from '~/session';
import { Buckets } from './Buckets';
import { ChangePlan } from './ChangePlan';
import { ErasureReceipt } from './ErasureReceipt';
import { Standing } from './Standing';
import { Story } from './Story';
import { Usage } from './Usage';
import styles from './Users.module.css';

const latest = 5;

export default function UserPage() {
  const tenant = useTenant();
  const { user: id } = useParams({ from: '/shell/t/$tenant/users/$user' });
  const search: UserSearch = useSearch({ from: '/shell/t/$tenant/users/$user' });
  const { edit, own } = useRole();
  const user = useQuery(userQuery(tenant, id));
  const { data: loadedRules } = useQuery(rulesQuery(tenant));
  const rules = loadedRules ?? [];
  const [erasing, setErasing] = useState(false);
  const { start, dialog } = useExport(tenant);
  const [changing, setChanging] = useState<Tagged<User> | null>(null);
  const overridable = user.data ? overridableRules(rules, user.data.value) : [];

  const range = useTimeRange('7d');
  const openViolation = usePanel<string>('open');
  const override = usePanel<string>('override');
  const erasure = usePanel<string>('erasure');

  async function erase(typed: string) {
    const body = { confirm: typed };
    const begun = await api.post('/api/v1/tenants/{tenant}/users/{user_id}/erase', { tenant, user_id: id, body });
    erasure(begun.receipt_id);
  }

  const raise = () => user.data && override(denyingRule(overridable, user.data.value) ?? overridable[0]?.rule_id);

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
        <>
          <TimeRange fallback="7d" />
          <CopyLink range={range} />
          {edit && !user.isError && (
            // Takes its place from the start, so that it does not move the content.
            <div className={styles.actions} style={{ visibility: user.data ? undefined : 'hidden' }}>
              <Button variant="default" onClick={() => setChanging(user.data ?? null)}>
                Change plan
              </Button>
              {own && (
                <MoreMenu label={`More actions for user ${id}`} variant="default" size={34}>
                  <Act icon={IconDownload} onClick={() => start(userDataAddress(tenant, id))}>
                    Export data
                  </Act>
                  <Act icon={IconTrash} color="red" onClick={() => setErasing(true)}>
                    Erase user
                  </Act>
                </MoreMenu>
              )}
              <GroupMenu
                tenant={tenant}
                group={{ by: 'user', value: id }}
                label="Block or let through"
                onRaise={overridable.length > 0 ? raise : null}
              />
              <Button leftSection={<IconBolt size={15} />} disabled={overridable.length === 0} onClick={raise}>
                New override
              </Button>
            </div>
          )}
        </>
      }
    >
      <Query query={user}>
        {({ value }) => (
          <>
            {!value.known && <Unknown tenant={tenant} id={id} />}
            <Standing
              tenant={tenant}
              user={value}
              edit={edit}
              overridable={new Set(overridable.map(({ rule_id }) => rule_id))}
              onOverride={override}
            />
            <Buckets key={id} tenant={tenant} user={value} edit={edit} onOverride={override} />
            <Story tenant={tenant} user={id} rules={loadedRules} span={range} />
            <Crossings tenant={tenant} which={{ user: id }} rules={loadedRules} />
            <Overrides some={value.overrides.length > 0}>
              <OverrideTable
                tenant={tenant}
                which={{ user: id }}
                rules={rules}
                without="user"
                edit={edit}
                onEdit={({ rule_id }) => override(rule_id)}
                none={<p className={styles.none}>No overrides.</p>}
              />
            </Overrides>
            <Usage tenant={tenant} user={id} />
            <Denials tenant={tenant} rules={rules} user={value} open={search.open} onOpen={openViolation} />
            {edit && search.override !== undefined && overridable.length > 0 && (
              <OverrideDialog
                tenant={tenant}
                user={{ user_id: id, plan: planOfChecks(value) }}
                rules={overridable}
                rule={search.override}
                saved={value.overrides}
                onClose={() => override(undefined)}
              />
            )}
          </>
        )}
      </Query>
      {own && dialog}
      {erasing && (
        <TypeToRemove
          title={`Erase user ${id}?`}
          lead="Removes every record of this user. This cannot be undone."
          verb="Erase user"
          word={id}
          onClose={() => setErasing(false)}
          remove={erase}
        />
      )}
      {own && search.erasure && (
        <ErasureReceipt tenant={tenant} user={id} receipt={search.erasure} onClose={() => erasure(undefined)} />
      )}
      {changing && <ChangePlan tenant={tenant} user={changing} onClose={() => setChanging(null)} />}
    </Page>
  );
}

/** The card of overrides, from the first one on: it stays when the last is removed, with the dialog that removed it. */
function Overrides({ some, children }: { some: boolean; children: React.ReactNode }) {
  const [begun, setBegun] = useState(some);
  if (some && !begun) setBegun(true);
  if (!begun) return null;
  return (
    <Card title="Overrides" flush>
      {children}
    </Card>
  );
}

function Unknown({ tenant, id }: { tenant: string; id: string }) {
  return (
    <Card title="Is this the right id?">
      <p role="status">
        Nothing is known of user {id}: no check in 13 months while{' '}
        <Link to="/t/$tenant/replays" params={{ tenant }}>
          checks were recorded
        </Link>
        , no denial, plan or override.
      </p>
    </Card>
  );
}

function PlanOf({ user: { plan, plan_source, sent_plan } }: { user: User }) {
  if (sent_plan !== null) {
    return (
      <span title={`The check denied last named it. Checks that name none are on ${plan ?? 'no plan'}.`}>
        <Outcome tone="neutral">Plan {sent_plan} · sent by the service</Outcome>
      </span>
    );
  }
  if (plan === null) return <Outcome tone="neutral">No plan</Outcome>;
  return (
    <Outcome tone="neutral">
      Plan {plan}
      {plan_source === 'tenant' && ' (default)'}
    </Outcome>
  );
}

interface DenialsProps {
  tenant: string;
  rules: Rule[];
  user: User;
  open: string | undefined;
  onOpen: (id: string | undefined) => void;
}

function Denials({ tenant, rules, user, open, onOpen }: DenialsProps) {
  const { user_id } = user;
  // By the time that the list shows: a row counts checks of a second.
  const recent_violations = user.recent_violations.toSorted((a, b) => Date.parse(b.last_at) - Date.parse(a.last_at));
  if (recent_violations.length === 0) return null;
  const rows = recent_violations.slice(0, latest);
  return (
    <Card
      title="Recent denials"
      flush
      actions={
        <Link to="/t/$tenant/violations" params={{ tenant }} search={{ user: user_id, range: '24h' }}>
          All of this user
        </Link>
      }
    >
      <DataTable
        label="Recent denials"
        columns={violationColumns(rules, rows, 'who')}
        rows={rows}
        rowKey={({ violation_id }) => violation_id}
        open={open}
        to={({ violation_id }) => here({ open: violation_id })}
        onOpen={({ violation_id }) => onOpen(violation_id)}
      />
      <ViolationPanel
        tenant={tenant}
        id={open}
        rows={recent_violations}
        onOpen={onOpen}
        block={(ip) => <BlockAddress key={ip} tenant={tenant} ip={ip} />}
      />
    </Card>
  );
}
