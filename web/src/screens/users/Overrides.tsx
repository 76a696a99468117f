import { ActionIcon, Button, Group } from '@mantine/core';
import { useInfiniteQuery, useQueryClient } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import { api, body, etagOf, ifMatch } from '~/api/client';
import { tenantKey } from '~/api/queries';
import type { Override, Rule } from '~/api/types';
import { ConfirmAction } from '~/components/ConfirmAction';
import { type Column, DataTable } from '~/components/DataTable';
import { Ends } from '~/components/Ends';
import { IconPencil, IconTrash } from '~/components/icons';
import { Card } from '~/components/Page';
import { done } from '~/components/toast';
import { plural } from '~/domain/format';
import { limitSentence } from '~/domain/rate';
import { tenantOverridesQuery } from '../overrides/queries';
import styles from './Users.module.css';

interface Props {
  tenant: string;
  user: string;
  overrides: Override[];
  hasMore: boolean;
  rules: Rule[];
  edit: boolean;
  onEdit: (rule: number) => void;
}

/** One user's overrides, and the buttons to edit and remove them. */
export function Overrides({ tenant, user, overrides, hasMore, rules, edit, onEdit }: Props) {
  const [removingRule, setRemoving] = useState<number | null>(null);
  const queries = useQueryClient();
  // The user's own answer has the first overrides only.
  const list = useInfiniteQuery({ ...tenantOverridesQuery(tenant, { user }), enabled: hasMore });
  const rows = (hasMore && list.data?.pages.flatMap(({ items }) => items)) || overrides;
  // From the list, so that after a 412 the newer version is what is shown and removed.
  const removing = rows.find(({ rule_id }) => rule_id === removingRule);
  const ruleOf = ({ rule_id }: Override) => rules.find((rule) => rule.rule_id === rule_id);

  const columns: Column<Override>[] = [
    {
      key: 'rule',
      header: 'Rule',
      render: (override) => (
        <Link to="/t/$tenant/rules/$rule" params={{ tenant, rule: String(override.rule_id) }}>
          <code>{ruleOf(override)?.key_pattern ?? `rule ${override.rule_id}`}</code>
        </Link>
      ),
    },
    { key: 'limit', header: 'Limit', render: limitSentence },
    {
      key: 'reason',
      header: 'Reason',
      wide: true,
      render: ({ reason }) => <span title={reason}>{reason}</span>,
    },
    { key: 'ends', header: 'Ends', width: 132, render: (override) => <Ends override={override} /> },
  ];
  if (edit) {
    columns.push({
      key: 'acts',
      header: 'Actions',
      width: 88,
      numeric: true,
      render: (override) => (
        <Group gap={0} justify="flex-end" wrap="nowrap">
          <ActionIcon aria-label="Edit this override" onClick={() => onEdit(override.rule_id)}>
            <IconPencil size={15} />
          </ActionIcon>
          <ActionIcon aria-label="Remove this override" onClick={() => setRemoving(override.rule_id)}>
            <IconTrash size={15} />
          </ActionIcon>
        </Group>
      ),
    });
  }

  async function remove(override: Override) {
    await body(
      api.DELETE('/api/v1/tenants/{tenant}/rules/{rule_id}/overrides/{user_id}', {
        params: {
          path: { tenant, rule_id: override.rule_id, user_id: user },
          header: ifMatch(etagOf(override)),
        },
      }),
    );
    await queries.invalidateQueries({ queryKey: tenantKey(tenant) });
    done(`Override removed. User ${user} has the rule’s limit again`);
  }

  const rule = removing && ruleOf(removing);
  return (
    <Card title="Overrides" lead="Limits that this user has instead of a rule’s." flush>
      {rows.length === 0 ? (
        <p className={styles.none}>No overrides: this user has the rules’ limits.</p>
      ) : (
        <DataTable label="Overrides" columns={columns} rows={rows} rowKey={({ rule_id }) => rule_id} />
      )}
      {hasMore && list.hasNextPage && (
        <footer className={styles.footer}>
          <span role="status">{plural(rows.length, 'override')} so far</span>
          <Button variant="default" loading={list.isFetchingNextPage} onClick={() => list.fetchNextPage()}>
            Show more
          </Button>
        </footer>
      )}
      <ConfirmAction
        opened={removingRule !== null}
        onClose={() => setRemoving(null)}
        title="Remove this override?"
        effect={
          removing && (
            <>
              User {user} then has {rule ? limitSentence(rule) : 'the rule’s limit'} instead of{' '}
              {limitSentence(removing)}, within 2 s.
            </>
          )
        }
        verb="Remove override"
        gone={removingRule !== null && !removing}
        destructive
        action={async () => removing && remove(removing)}
      />
    </Card>
  );
}
