import type { Tenant } from '~/api/types';
import { Facts } from '~/components/Facts';
import { described, draftOf } from './settings';

/** The settings, for those who may look and not change. */
export function TenantFacts({ tenant }: { tenant: Tenant }) {
  return <Facts facts={{ Slug: <code>{tenant.slug}</code>, ...described(draftOf(tenant)) }} />;
}
