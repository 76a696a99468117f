import type { Rule } from '~/api/types';
import { Outcome } from '~/components/Outcome';
import { useNow } from '~/components/Time';
import { hasExpired } from '~/domain/group';

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
