import { useRemovedRule } from '~/api/removal';
import type { Rule } from '~/api/types';
import { RuleLink } from './RuleLink';

interface Props {
  tenant: string;
  id: number;
  /** Missing if it was removed. */
  rule: Rule | undefined;
}

/** A rule that may have been removed since; its name is then the one that the audit log has. */
export function FormerRuleLink({ tenant, id, rule }: Props) {
  const removed = useRemovedRule(tenant, rule ? undefined : id);
  return (
    <>
      <RuleLink tenant={tenant} id={id} rule={rule ?? removed} />
      {!rule && !removed && ', removed'}
    </>
  );
}
