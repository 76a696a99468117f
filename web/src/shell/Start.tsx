import { IconTenants } from '~/components/icons';
import { EmptyState } from '~/components/states';

export function Start() {
  return (
    <EmptyState icon={IconTenants} title="You are not a member of any tenant yet">
      Ask an owner of a tenant to invite you, then open the link that you get.
    </EmptyState>
  );
}
