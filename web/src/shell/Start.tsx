import { IconTenants } from '~/components/icons';
import { EmptyState } from '~/components/states';

/** Shown to accounts without a membership. */
export function Start() {
  return (
    <EmptyState icon={<IconTenants size={20} aria-hidden />} title="You are not a member of any tenant yet">
      A tenant is one product or team with its own plans, rules and users. Ask an owner for an invitation link.
    </EmptyState>
  );
}
