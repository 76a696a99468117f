import { useQuery } from '@tanstack/react-query';
import { membersQuery, rulesQuery } from '~/api/queries';
import type { Names } from '~/domain/audit';
import { ruleLabel } from '~/domain/rule';

export function useNames(tenant: string): Names & { isPending: boolean } {
  const { data: members, isPending: awaitsMembers } = useQuery(membersQuery(tenant));
  const { data: rules, isPending: awaitsRules } = useQuery(rulesQuery(tenant));
  return {
    isPending: awaitsMembers || awaitsRules,
    member: (id) => members?.find(({ account_id }) => String(account_id) === id)?.email,
    rule: (id) => {
      const rule = rules?.find(({ rule_id }) => String(rule_id) === id);
      return rule && ruleLabel(rule);
    },
  };
}
