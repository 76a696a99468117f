import { Button } from '@mantine/core';
import { useMutation, useQueryClient } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { changed } from '~/api/changes';
import { api } from '~/api/client';
import type { Rule, RulePatch } from '~/api/types';
import { done, failed } from '~/components/toast';
import { patch, type RuleDraft } from './ruleDraft';

interface Props {
  tenant: string;
  rule: Rule;
  draft: RuleDraft;
  ready: boolean;
  onSaved: () => void;
}

export function TryAsShadow({ tenant, rule, draft, ready, onSaved }: Props) {
  const begin = useTryAsShadow(tenant, rule);
  const save = useMutation({
    mutationFn: () => begin(patch(rule, draft), onSaved),
    onError: (error) => failed('Could not try it as shadow', error),
  });
  return (
    <Button variant="default" disabled={!ready} loading={save.isPending} onClick={() => save.mutate()}>
      Try as shadow
    </Button>
  );
}

export function useTryAsShadow(tenant: string, live: Rule) {
  const queries = useQueryClient();
  const navigate = useNavigate();
  return async (change: RulePatch, onCreated?: () => void) => {
    const { rule_id } = await api.post('/api/v1/tenants/{tenant}/rules/{rule_id}/candidate', {
      tenant,
      rule_id: live.rule_id,
      body: change,
    });
    onCreated?.();
    await navigate({ to: '/t/$tenant/rules/$rule', params: { tenant, rule: rule_id }, ignoreBlocker: true });
    await changed(queries, tenant, 'rule');
    done('Candidate created. Within 2 s it reports what it would deny. The live rule is unchanged');
  };
}
