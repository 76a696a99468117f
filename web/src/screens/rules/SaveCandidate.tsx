import { Button } from '@mantine/core';
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { changed } from '~/api/changes';
import { api, body } from '~/api/client';
import { rulesQuery } from '~/api/queries';
import type { Rule } from '~/api/types';
import { done, failed } from '~/components/toast';
import { copyOf, creation, type RuleDraft } from './ruleDraft';

interface Props {
  tenant: string;
  rule: Rule;
  draft: RuleDraft;
  ready: boolean;
  /** Called when the draft is saved as its own rule. */
  onSaved: () => void;
}

/** Saves the draft as a shadow rule. The live rule does not change. */
export function SaveCandidate({ tenant, rule, draft, ready, onSaved }: Props) {
  const queries = useQueryClient();
  const navigate = useNavigate();
  const { data: rules } = useQuery(rulesQuery(tenant));
  const save = useMutation({
    mutationFn: () => {
      const candidate = copyOf({ ...rule, ...draft, is_active: true }, rules ?? [], 'shadow');
      return body(
        api.POST('/api/v1/tenants/{tenant}/rules', {
          params: { path: { tenant } },
          body: creation(candidate),
        }),
      );
    },
    onSuccess: async ({ rule_id }) => {
      onSaved();
      await navigate({
        to: '/t/$tenant/rules/$rule',
        params: { tenant, rule: String(rule_id) },
        ignoreBlocker: true,
      });
      await changed(queries, tenant, 'rule');
      done('Shadow candidate saved. The live rule is unchanged');
    },
    onError: (error) => failed('Could not save the candidate', error),
  });
  return (
    <Button
      variant="default"
      disabled={!ready || !rules}
      loading={save.isPending}
      onClick={() => save.mutate()}
    >
      Save as shadow candidate
    </Button>
  );
}
