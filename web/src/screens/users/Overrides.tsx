import { ActionIcon, Group } from '@mantine/core';
import { useQueryClient } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import { api, body, etagOf, ifMatch } from '~/api/client';
import { tenantKey } from '~/api/queries';
import type { Override, Rule } from '~/api/types';
import { ConfirmAction } from '~/components/ConfirmAction';
import { type Column, DataTable } from '~/components/DataTable';
import { IconPencil, IconTrash } from '~/components/icons';
import { Outcome } from '~/components/Outcome';
import { Card } from '~/components/Page';
import { RelativeTime } from '~/components/Time';
import { done } from '~/components/toast';
import { limitSentence } from '~/domain/rate';
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
      {overrides.length === 0 ? (
        <p className={styles.none}>None. The limits of the rules hold.</p>
      ) : (
        <DataTable label="Own limits" columns={columns} rows={overrides} rowKey={({ rule_id }) => rule_id} />
      )}
      {hasMore && (
        <p className={styles.none}>
          User {user} has more of these. The first 500 are shown; the page of each rule has the others.
        </p>
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

function Ends({ override: { expires_at, expired } }: { override: Override }) {
  if (expired) return <Outcome tone="neutral">Expired</Outcome>;
  return expires_at === null ? <span className="soft">never</span> : <RelativeTime at={expires_at} />;
}
