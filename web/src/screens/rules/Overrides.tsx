import { ActionIcon, Button, Menu } from '@mantine/core';
import { queryOptions, useQuery, useQueryClient } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import { api, body, etagOf, ifMatch } from '~/api/client';
import { all } from '~/api/pages';
import { tenantKey } from '~/api/queries';
import type { Override, Rule } from '~/api/types';
import { ConfirmAction } from '~/components/ConfirmAction';
import { type Column, DataTable } from '~/components/DataTable';
import { Dialog } from '~/components/Dialog';
import { Ends } from '~/components/Ends';
import { IconDots, IconPencil, IconPlus, IconTrash } from '~/components/icons';
import { Card } from '~/components/Page';
import { Query } from '~/components/Query';
import { done } from '~/components/toast';
import { limitSentence, rateShort } from '~/domain/rate';
import { useRole } from '~/session';
import { OverrideEditor } from './OverrideEditor';
import styles from './Rules.module.css';

export const overridesQuery = (tenant: string, ruleId: number) =>
  queryOptions({
    queryKey: tenantKey(tenant, 'rules', ruleId, 'overrides'),
    queryFn: ({ signal }) =>
      all((cursor) =>
        body(
          api.GET('/api/v1/tenants/{tenant}/rules/{rule_id}/overrides', {
            params: { path: { tenant, rule_id: ruleId }, query: { limit: 500, cursor } },
            signal,
          }),
        ),
      ),
  });

/** Users whom the rule treats otherwise, why, and until when. */
export function Overrides({ tenant, rule }: { tenant: string; rule: Rule }) {
  const { edit } = useRole();
  const queries = useQueryClient();
  const overrides = useQuery(overridesQuery(tenant, rule.rule_id));
  const [editing, setEditing] = useState<Override | 'new' | null>(null);
  const [removingUser, setRemoving] = useState<string | null>(null);
  // From the list, so that a newer version of it is what is shown and removed.
  const removing = overrides.data?.find(({ user_id }) => user_id === removingUser) ?? null;

  async function remove(override: Override) {
    await api.DELETE('/api/v1/tenants/{tenant}/rules/{rule_id}/overrides/{user_id}', {
      params: {
        path: { tenant, rule_id: rule.rule_id, user_id: override.user_id },
        header: ifMatch(etagOf(override)),
      },
    });
    await queries.invalidateQueries({ queryKey: tenantKey(tenant) });
    done(`Override removed. User ${override.user_id} has the rule’s limit again`);
  }

  const columns: Column<Override>[] = [
    {
      key: 'user',
      header: 'User',
      render: ({ user_id }) => (
        <Link to="/t/$tenant/users/$user" params={{ tenant, user: user_id }}>
          {user_id}
        </Link>
      ),
    },
    {
      key: 'limit',
      header: 'Limit',
      width: '26%',
      render: (one) => `${rateShort(one)}, burst ${one.burst_capacity.toLocaleString('en')}`,
    },
    {
      key: 'reason',
      header: 'Reason',
      wide: true,
      render: ({ reason }) => <span title={reason}>{reason}</span>,
    },
    { key: 'until', header: 'Ends', width: 108, render: (one) => <Ends override={one} /> },
  ];
  if (edit) {
    columns.push({
      key: 'actions',
      header: 'Actions',
      quiet: true,
      width: 52,
      render: (one) => (
        <Menu position="bottom-end">
          <Menu.Target>
            <ActionIcon aria-label={`Override of user ${one.user_id}`}>
              <IconDots size={15} />
            </ActionIcon>
          </Menu.Target>
          <Menu.Dropdown>
            <Menu.Item leftSection={<IconPencil size={15} />} onClick={() => setEditing(one)}>
              Edit
            </Menu.Item>
            <Menu.Item leftSection={<IconTrash size={15} />} onClick={() => setRemoving(one.user_id)}>
              Remove
            </Menu.Item>
          </Menu.Dropdown>
        </Menu>
      ),
    });
  }

  return (
    <Card
      title="Overrides"
      lead="Users with another limit than the rule’s."
      flush
      actions={
        edit && (
          <Button variant="default" leftSection={<IconPlus size={15} />} onClick={() => setEditing('new')}>
            New override
          </Button>
        )
      }
    >
      <Query query={overrides}>
        {(items) =>
          items.length > 0 ? (
            <DataTable label="Overrides" columns={columns} rows={items} rowKey={({ user_id }) => user_id} />
          ) : (
            <p className={styles.nothing}>
              No overrides: everybody has the rule’s limit. An override gives one user another, for a while or
              for good: a migration, a contract.
            </p>
          )
        }
      </Query>
      {editing && (
        <Dialog
          onClose={() => setEditing(null)}
          size={520}
          title={editing === 'new' ? 'New override' : `Override of user ${editing.user_id}`}
        >
          <OverrideEditor
            tenant={tenant}
            rule={rule}
            saved={editing === 'new' ? undefined : editing}
            onClose={() => setEditing(null)}
          />
        </Dialog>
      )}
      <ConfirmAction
        opened={removingUser !== null}
        onClose={() => setRemoving(null)}
        title="Remove this override?"
        effect={
          removing &&
          `User ${removing.user_id} goes from ${limitSentence(removing)} to ${limitSentence(rule)} within 2 s.`
        }
        verb="Remove override"
        gone={removingUser !== null && !removing}
        destructive
        action={async () => removing && remove(removing)}
      />
    </Card>
  );
}
