import type { Tenant } from '~/api/types';
import { Facts } from '~/components/Facts';
import { type Draft, draftOf, sayField } from './settings';

export function TenantFacts({ tenant }: { tenant: Tenant }) {
  const draft = draftOf(tenant);
  const facts = (Object.keys(draft) as (keyof Draft)[]).map((field) => sayField(field, draft));
  return <Facts facts={{ Slug: <code>{tenant.slug}</code>, ...Object.fromEntries(facts) }} />;
}
