import { ActionIcon, Menu } from '@mantine/core';
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { useState } from 'react';
import { api, ifMatch, type Tagged } from '~/api/client';
import { lastHourQuery, ruleQuery, tenantKey } from '~/api/queries';
import type { Rule } from '~/api/types';
import { ConfirmAction } from '~/components/ConfirmAction';
import { IconDots, IconTrash } from '~/components/icons';
import { done } from '~/components/toast';
import { exactNumber } from '~/domain/format';
import { limitSentence } from '~/domain/rate';

/** What else can be done with a rule. */
export function RuleActions({
  tenant,
  saved: { value: rule, etag },
}: {
  tenant: string;
  saved: Tagged<Rule>;
}) {
  const queries = useQueryClient();
  const navigate = useNavigate();
  const [asking, setAsking] = useState(false);
  const { data: lately } = useQuery({ ...lastHourQuery(tenant), enabled: asking });
  const denials = lately?.get(rule.rule_id);

  async function remove() {
    await api.DELETE('/api/v1/tenants/{tenant}/rules/{rule_id}', {
      params: { path: { tenant, rule_id: rule.rule_id }, header: ifMatch(etag) },
    });
    await navigate({ to: '/t/$tenant/rules', params: { tenant }, ignoreBlocker: true });
    queries.removeQueries({ queryKey: ruleQuery(tenant, rule.rule_id).queryKey });
    await queries.invalidateQueries({ queryKey: tenantKey(tenant) });
    done('Rule deleted; the audit log can bring it back');
  }

  const was =
    rule.action === 'limit'
      ? `Requests that it limits to ${limitSentence(rule)} are no longer limited by it`
      : 'Requests that it matches are decided by the other rules';
  return (
    <>
      <Menu position="bottom-end">
        <Menu.Target>
          <ActionIcon size={32} variant="default" aria-label="More">
            <IconDots size={16} />
          </ActionIcon>
        </Menu.Target>
        <Menu.Dropdown>
          <Menu.Item leftSection={<IconTrash size={15} />} onClick={() => setAsking(true)}>
            Delete rule
          </Menu.Item>
        </Menu.Dropdown>
      </Menu>
      <ConfirmAction
        opened={asking}
        onClose={() => setAsking(false)}
        title="Delete this rule?"
        effect={
          <>
            {was}, from 2 s after.{' '}
            {denials &&
              `In the last hour it denied ${exactNumber(denials.denied)} of ${exactNumber(denials.checks)} checks. `}
            Its overrides go with it. The audit log can undo this; its buckets begin full then.
          </>
        }
        verb="Delete rule"
        destructive
        action={remove}
      />
    </>
  );
}
