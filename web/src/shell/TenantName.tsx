import { useQuery } from '@tanstack/react-query';
import { tenantQuery } from '~/api/queries';
import { useSession } from '~/session';

export function useTenantName(slug: string | undefined): string | undefined {
  const { memberships } = useSession();
  const membership = memberships.find(({ tenant }) => tenant.slug === slug);
  const { data } = useQuery({ ...tenantQuery(slug ?? ''), enabled: slug !== undefined && !membership });
  return membership?.tenant.name ?? data?.value.name ?? slug;
}

export function TenantName({ slug }: { slug: string }) {
  return (
    <span>
      <span className="aside">Tenant: </span>
      {useTenantName(slug)}
    </span>
  );
}
