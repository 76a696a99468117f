import { useMutation, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { changed } from '~/api/changes';
import { api, ifMatch, type Tagged, tagged } from '~/api/client';
import { isStatus, ProblemError } from '~/api/problem';
import { ruleQuery } from '~/api/queries';
import type { Rule } from '~/api/types';
import { done } from '~/components/toast';
import { isValid } from '~/domain/rate';
import { isDirty, patch, type RuleDraft } from './ruleDraft';

/** The state of a rule’s form. */
export interface RuleEditor {
  rule: Rule;
  draft: RuleDraft;
  change: (part: Partial<RuleDraft>) => void;
  reset: () => void;
  dirty: boolean;
  /** The draft is valid. */
  ready: boolean;
  save: () => void;
  saving: boolean;
  error: unknown;
  problem: (pointer: string) => string | undefined;
  /** The saved rule after a lost race. */
  theirs: Tagged<Rule> | null;
  keepMine: () => void;
  takeTheirs: () => void;
  closeConflict: () => void;
}

export function useRuleEditor(tenant: string, saved: Tagged<Rule>): RuleEditor {
  const queries = useQueryClient();
  // The version that the reader started from. A newer version that arrives since must not be overwritten
  // unseen.
  const [begun, setBegun] = useState<{ base: Tagged<Rule>; draft: RuleDraft } | null>(null);
  const [theirs, setTheirs] = useState<Tagged<Rule> | null>(null);
  const base = begun?.base ?? saved;
  const draft: RuleDraft = begun?.draft ?? base.value;
  const dirty = isDirty(base.value, draft);
  const params = { path: { tenant, rule_id: base.value.rule_id } };
  const { queryKey } = ruleQuery(tenant, base.value.rule_id);

  const save = useMutation({
    mutationFn: (on: Tagged<Rule>) =>
      tagged(
        api.PATCH('/api/v1/tenants/{tenant}/rules/{rule_id}', {
          params: { ...params, header: ifMatch(on.etag) },
          body: patch(on.value, draft),
        }),
      ),
    onSuccess: async (next) => {
      queries.setQueryData(queryKey, next);
      setBegun(null);
      done('Rule saved. It takes effect within 2 s');
      await changed(queries, tenant, 'rule');
    },
    onError: async (error) => {
      if (!isStatus(error, 412)) return;
      setTheirs(await tagged(api.GET('/api/v1/tenants/{tenant}/rules/{rule_id}', { params })));
    },
  });

  const error = isStatus(save.error, 412) ? null : save.error;
  return {
    rule: base.value,
    draft,
    change: (part) => setBegun({ base, draft: { ...draft, ...part } }),
    reset: () => {
      setBegun(null);
      save.reset();
    },
    dirty,
    ready: draft.action !== 'limit' || isValid(draft),
    save: () => save.mutate(base),
    saving: save.isPending,
    error,
    problem: (pointer) => (error instanceof ProblemError ? error.field(pointer) : undefined),
    theirs,
    keepMine: () => {
      if (!theirs) return;
      setBegun({ base: theirs, draft });
      setTheirs(null);
      save.mutate(theirs);
    },
    takeTheirs: () => {
      if (theirs) queries.setQueryData(queryKey, theirs);
      setBegun(null);
      setTheirs(null);
    },
    closeConflict: () => setTheirs(null),
  };
}
