import { useRemovedRule } from '~/api/removal';
import type { Rule } from '~/api/types';
import { RuleLink } from './RuleLink';

interface Props {
  tenant: string;
  id: string;
  /** Null if it was removed, undefined while that is unknown. */
  rule: Rule | null | undefined;
}

export function FormerRuleLink({ tenant, id, rule }: Props) {
  const removed = useRemovedRule(tenant, rule === null ? id : undefined);
  return (
    <>
      <RuleLink tenant={tenant} id={id} rule={rule ?? removed} />
      {rule === null && !removed && ', removed'}
    </>
  );
}
