import { useQuery } from '@tanstack/react-query';
import { openScheduledQuery } from '~/api/scheduled';
import type { Rule, ScheduledChange } from '~/api/types';
import { Ends } from '~/components/Ends';
import { Outcome } from '~/components/Outcome';
import { useNow } from '~/components/Time';
import { hasExpired } from '~/domain/group';
import { byRule } from '~/domain/scheduled';

type State = Pick<Rule, 'action' | 'mode' | 'is_active' | 'expires_at'>;

export function RuleChips({ rule }: { rule: State }) {
  const now = useNow();
  if (!rule.is_active) return <Outcome tone="neutral">Off</Outcome>;
  if (hasExpired(rule, now)) return <Outcome tone="neutral">Expired</Outcome>;
  if (rule.mode === 'shadow') return <Outcome tone="shadow">Shadow</Outcome>;
  if (rule.action === 'block') return <Outcome tone="denied">Blocks</Outcome>;
  if (rule.action === 'bypass') return <Outcome tone="allowed">Bypass</Outcome>;
  return <span className="soft">Enforced</span>;
}

export function useChangesInForce(tenant: string): Map<string, ScheduledChange> {
  const { data: open = [] } = useQuery(openScheduledQuery(tenant));
  return byRule(open.filter(({ state }) => state === 'in_force'));
}

interface Props {
  rule: Rule;
  change: ScheduledChange | undefined;
}

/** Says when a temporary rule ends, or when a rule that was changed for a time goes back. */
export function RuleEnds({ rule, change }: Props) {
  if (rule.expires_at) return <Ends at={rule.expires_at} />;
  return change?.ends_at ? <Ends at={change.ends_at} verb="goes back" /> : null;
}
