import type { Tenant } from '~/api/types';
import { Facts } from '~/components/Facts';
import { described, draftOf } from './settings';

/** The settings, for members who cannot edit them. */
export function TenantFacts({ tenant }: { tenant: Tenant }) {
  return <Facts facts={{ Slug: <code>{tenant.slug}</code>, ...described(draftOf(tenant)) }} />;
}
