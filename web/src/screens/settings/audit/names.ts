import { useQuery } from '@tanstack/react-query';
import { rulesQuery } from '~/api/queries';
import type { Names } from '~/domain/audit';
import { membersQuery } from '../members/queries';

/** The names of members and rules, as far as they are there still. */
export function useNames(tenant: string): Names {
  const { data: members } = useQuery(membersQuery(tenant));
  const { data: rules } = useQuery(rulesQuery(tenant));
  return {
    member: (id) => members?.find(({ account_id }) => String(account_id) === id)?.email,
    rule: (id) => rules?.find(({ rule_id }) => String(rule_id) === id)?.key_pattern,
  };
}
