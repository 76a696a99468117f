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

/** The limits that the user has of their own. */
export function Overrides({ tenant, user, overrides, hasMore, rules, edit, onEdit }: Props) {
  const [ending, setEnding] = useState<Override | null>(null);
  const queries = useQueryClient();
  // The user's own answer has the first overrides only.
  const list = useInfiniteQuery({ ...tenantOverridesQuery(tenant, { user }), enabled: hasMore });
  const rows = (hasMore && list.data?.pages.flatMap(({ items }) => items)) || overrides;
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
    { key: 'limit', header: 'Own limit', render: limitSentence },
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
      header: 'Change',
      width: 88,
      numeric: true,
      render: (override) => (
        <Group gap={0} justify="flex-end" wrap="nowrap">
          <ActionIcon aria-label="Change this limit" onClick={() => onEdit(override.rule_id)}>
            <IconPencil size={15} />
          </ActionIcon>
          <ActionIcon aria-label="End this limit" onClick={() => setEnding(override)}>
            <IconTrash size={15} />
          </ActionIcon>
        </Group>
      ),
    });
  }

  async function end(override: Override) {
    await body(
      api.DELETE('/api/v1/tenants/{tenant}/rules/{rule_id}/overrides/{user_id}', {
        params: {
          path: { tenant, rule_id: override.rule_id, user_id: user },
          header: ifMatch(etagOf(override)),
        },
      }),
    );
    await queries.invalidateQueries({ queryKey: tenantKey(tenant) });
    done('The rule’s own limit holds again');
  }

  const rule = ending && ruleOf(ending);
  return (
    <Card title="Own limits" lead="Overrides of a rule for this user alone." flush>
      {rows.length === 0 ? (
        <p className={styles.none}>None. The limits of the rules hold.</p>
      ) : (
        <DataTable label="Own limits" columns={columns} rows={rows} rowKey={({ rule_id }) => rule_id} />
      )}
      {hasMore && list.hasNextPage && (
        <footer className={styles.footer}>
          <span role="status">{plural(rows.length, 'override')} so far</span>
          <Button variant="default" loading={list.isFetchingNextPage} onClick={() => list.fetchNextPage()}>
            Show more
          </Button>
        </footer>
      )}
      {ending && (
        <ConfirmAction
          opened
          onClose={() => setEnding(null)}
          title="End this limit?"
          effect={
            <>
              User {user} then has {rule ? limitSentence(rule) : 'the rule’s own limit'} instead of{' '}
              {limitSentence(ending)}, within 2 s.
            </>
          }
          verb="End it"
          destructive
          action={() => end(ending)}
        />
      )}
    </Card>
  );
}
