import { useQuery } from '@tanstack/react-query';
import { openScheduledQuery } from '~/api/scheduled';
import type { Rule, ScheduledChange } from '~/api/types';
import { Ends } from '~/components/Ends';
import { byRule } from '~/domain/scheduled';

export function useChangesInForce(tenant: string): Map<string, ScheduledChange> {
  const { data: open = [] } = useQuery(openScheduledQuery(tenant));
  return byRule(open.filter(({ state }) => state === 'in_force'));
}

interface Props {
  rule: Rule;
  change: ScheduledChange | undefined;
}

/** Says when a temporary rule ends, or when a rule that was changed for a time goes back. Other rules show nothing. */
export function RuleEnds({ rule, change }: Props) {
  if (rule.expires_at) return <Ends at={rule.expires_at} />;
  return change?.ends_at ? <Ends at={change.ends_at} verb="goes back" /> : null;
}
