import { useQueryClient } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { changed } from '~/api/changes';
import { api } from '~/api/client';
import type { Rule, RulePatch } from '~/api/types';
import { done } from '~/components/toast';

/** Returns what creates a candidate for a live rule and opens its page. */
export function useTryAsShadow(tenant: string, live: Rule) {
  const queries = useQueryClient();
  const navigate = useNavigate();
  return async (patch: RulePatch, onCreated?: () => void) => {
    const { rule_id } = await api.post('/api/v1/tenants/{tenant}/rules/{rule_id}/candidate', {
      tenant,
      rule_id: live.rule_id,
      body: patch,
    });
    onCreated?.();
    await navigate({
      to: '/t/$tenant/rules/$rule',
      params: { tenant, rule: String(rule_id) },
      ignoreBlocker: true,
    });
    await changed(queries, tenant, 'rule');
    done('Candidate created. Within 2 s it reports what it would deny. The live rule is unchanged');
  };
}
