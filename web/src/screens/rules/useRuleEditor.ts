import { useQueryClient } from '@tanstack/react-query';
import { changed } from '~/api/changes';
import { api, type Tagged, tagged } from '~/api/client';
import { ProblemError } from '~/api/problem';
import { ruleQuery } from '~/api/queries';
import type { Rule } from '~/api/types';
import { undoOf } from '~/api/undo';
import { done } from '~/components/toast';
import { useSave } from '~/components/useSave';
import { isValid } from '~/domain/rate';
import { draftOf, isDirty, patch, type RuleDraft, sayField } from './ruleDraft';

export type RuleEditor = ReturnType<typeof useRuleEditor>;

export function useRuleEditor(tenant: string, saved: Tagged<Rule>) {
  const queries = useQueryClient();
  const { rule_id } = saved.value;
  const params = { tenant, rule_id };
  const editor = useSave<Rule, RuleDraft>({
    what: 'this rule',
    saved,
    draftOf,
    send: (draft, base) =>
      tagged(
        api.patch('/api/v1/tenants/{tenant}/rules/{rule_id}', {
          ...params,
          etag: base.etag,
          body: patch(base.value, draft),
        }),
      ),
    read: () => tagged(api.get('/api/v1/tenants/{tenant}/rules/{rule_id}', params)),
    say: sayField,
    store: (now) => queries.setQueryData(ruleQuery(tenant, rule_id).queryKey, now),
    onSaved: ({ value }) => {
      done('Rule saved. It takes effect within 2 s', undoOf(tenant, value));
      return changed(queries, tenant, 'rule');
    },
  });
  const { draft, error } = editor;
  return {
    ...editor,
    rule: editor.base,
    dirty: isDirty(editor.base, draft),
    ready: draft.action !== 'limit' || isValid(draft),
    problem: (pointer: string) => (error instanceof ProblemError ? error.field(pointer) : undefined),
  };
}
