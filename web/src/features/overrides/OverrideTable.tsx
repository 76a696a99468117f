import { useInfiniteQuery, useQueryClient } from '@tanstack/react-query';
import type { LinkProps } from '@tanstack/react-router';
import { useState } from 'react';
import { changed } from '~/api/changes';
import type { Override, Rule } from '~/api/types';
import { undoOf } from '~/api/undo';
import { ConfirmAction } from '~/components/ConfirmAction';
import { type Column, DataTable } from '~/components/DataTable';
import { IconPencil, IconTrash } from '~/components/icons';
import { Act, MoreMenu } from '~/components/MoreMenu';
import { Outcome } from '~/components/Outcome';
import { Query } from '~/components/Query';
import { RuleLink, RuleName } from '~/components/RuleLink';
import { ShowMore } from '~/components/ShowMore';
import { RelativeTime, useNow } from '~/components/Time';
import { done } from '~/components/toast';
import { hasExpired } from '~/domain/group';
import { limitSentence } from '~/domain/rate';
import { overridden } from './draft';
import { overridesQuery, removeOverride, type Which } from './queries';

interface Props {
  tenant: string;
  which: Which;
  rules: Rule[];
  /** The column that would say the same on every row. */
  without?: 'user' | 'rule';
  edit: boolean;
  onEdit: (override: Override) => void;
  none: React.ReactNode;
}

export function OverrideTable({ tenant, which, rules, without, edit, onEdit, none }: Props) {
  const queries = useQueryClient();
  const list = useInfiniteQuery(overridesQuery(tenant, which));
  const [removingKey, setRemoving] = useState<string | null>(null);
  const rows = list.data ?? [];
  // Taken from the list, so that after a 412 the newer version is shown and removed.
  const removing = rows.find((override) => keyOf(override) === removingKey);
  const rule = removing && ruleOf(rules, removing);

  async function remove(override: Override) {
    const removed = await removeOverride(tenant, override);
    await changed(queries, tenant, 'override');
    done(`Override removed. User ${override.user_id} has the rule’s limit again`, undoOf(tenant, removed));
  }

  const columns = columnsOf(tenant, rules, without).filter(({ key }) => key !== without);
  if (edit) {
    columns.push({
      key: 'actions',
      header: 'Actions',
      quiet: true,
      width: 52,
      render: (override) => (
        <Actions override={override} onEdit={onEdit} onRemove={() => setRemoving(keyOf(override))} />
      ),
    });
  }
  return (
    <Query query={list}>
      {() => (
        <>
          {rows.length > 0 ? (
            <DataTable
              label="Overrides"
              columns={columns}
              rows={rows}
              rowKey={keyOf}
              to={(override) => (without === 'user' ? ruleAddress(tenant, override) : userAddress(tenant, override))}
            />
          ) : (
            !list.hasNextPage && none
          )}
          {(list.hasNextPage || (rows.length > 0 && !without)) && <ShowMore list={list} rows={rows} noun="override" />}
          <ConfirmAction
            opened={removingKey !== null}
            onClose={() => setRemoving(null)}
            title="Remove this override?"
            effect={
              removing &&
              `User ${removing.user_id} goes from ${limitWith(rule, removing)} to ${
                rule ? limitSentence(rule) : 'the rule’s limit'
              } within 2 s.`
            }
            verb="Remove override"
            gone={removingKey !== null && !removing}
            destructive
            action={async () => removing && remove(removing)}
          />
        </>
      )}
    </Query>
  );
}

function keyOf({ rule_id, user_id }: Override): string {
  return `${rule_id}:${user_id}`;
}

function ruleOf(rules: Rule[], { rule_id }: Override): Rule | undefined {
  return rules.find((rule) => rule.rule_id === rule_id);
}

function limitWith(rule: Rule | undefined, override: Override): string {
  return limitSentence(rule ? overridden(rule, override) : override);
}

function userAddress(tenant: string, { user_id }: Override): LinkProps {
  return { to: '/t/$tenant/users/$user', params: { tenant, user: user_id } };
}

function ruleAddress(tenant: string, { rule_id }: Override): LinkProps {
  return { to: '/t/$tenant/rules/$rule', params: { tenant, rule: String(rule_id) } };
}

const columnsOf = (tenant: string, rules: Rule[], without?: 'user' | 'rule'): Column<Override>[] => [
  { key: 'user', header: 'User', wraps: true, render: ({ user_id }) => user_id },
  {
    key: 'rule',
    header: 'Rule',
    under: without !== 'user',
    wraps: true,
    render: (override) => {
      const props = { id: override.rule_id, rule: ruleOf(rules, override) };
      return without === 'user' ? <RuleName {...props} /> : <RuleLink tenant={tenant} {...props} />;
    },
  },
  {
    key: 'limit',
    header: 'Limit',
    under: true,
    wraps: true,
    render: (override) => limitWith(ruleOf(rules, override), override),
  },
  {
    key: 'reason',
    header: 'Reason',
    under: true,
    wraps: true,
    render: ({ reason }) => reason,
  },
  {
    key: 'ends',
    header: 'Ends',
    width: 120,
    under: true,
    render: (override) => <Ends override={override} />,
  },
];

function Ends({ override: { expires_at } }: { override: Override }) {
  const now = useNow(1000);
  if (hasExpired({ expires_at }, now)) return <Outcome tone="neutral">Expired</Outcome>;
  return expires_at === null ? <span className="soft">Never</span> : <RelativeTime at={expires_at} />;
}

interface ActionsProps {
  override: Override;
  onEdit: (override: Override) => void;
  onRemove: () => void;
}

function Actions({ override, onEdit, onRemove }: ActionsProps) {
  return (
    <MoreMenu label={`Actions for the override of user ${override.user_id}`}>
      <Act icon={IconPencil} onClick={() => onEdit(override)}>
        Edit
      </Act>
      <Act icon={IconTrash} onClick={onRemove}>
        Remove
      </Act>
    </MoreMenu>
  );
}
