import { useQueryClient } from '@tanstack/react-query';
import { changed } from '~/api/changes';
import { api, etagOf } from '~/api/client';
import type { Rule } from '~/api/types';
import { undoOf } from '~/api/undo';
import { ActButton } from '~/components/ActButton';
import { done } from '~/components/toast';

export function EndNow({ tenant, rule }: { tenant: string; rule: Rule }) {
  const queries = useQueryClient();
  async function end() {
    const ended = await api.patch('/api/v1/tenants/{tenant}/rules/{rule_id}', {
      tenant,
      rule_id: rule.rule_id,
      etag: etagOf(rule),
      body: { expires_in_seconds: 0 },
    });
    await changed(queries, tenant, 'rule');
    done('The rule has ended', undoOf(tenant, ended));
  }
  return (
    <ActButton size="xs" act={end} failure="The rule was not ended">
      End now
    </ActButton>
  );
}
