import type { Rule } from '~/api/types';
import { Outcome } from '~/components/Outcome';

/** What is special about a rule; one that is simply enforced says so quietly. */
export function RuleChips({ rule }: { rule: Pick<Rule, 'action' | 'mode' | 'is_active'> }) {
  if (!rule.is_active) return <Outcome tone="neutral">off</Outcome>;
  if (rule.mode === 'shadow') return <Outcome tone="shadow">shadow</Outcome>;
  if (rule.action === 'block') return <Outcome tone="denied">blocks</Outcome>;
  if (rule.action === 'bypass') return <Outcome tone="allowed">bypass</Outcome>;
  return <span className="soft">enforced</span>;
}
