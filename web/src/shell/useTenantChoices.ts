import { useDebouncedValue } from '@mantine/hooks';
import { keepPreviousData, useQuery } from '@tanstack/react-query';
import { api } from '~/api/client';
import { useSession } from '~/session';

interface TenantChoice {
  slug: string;
  name: string;
  note?: string;
  inShadow: boolean;
}

const most = 20;

/** Memberships first, then, for platform admins, others. */
export function useTenantChoices(query: string, enabled = true): TenantChoice[] {
  const { account, memberships } = useSession();
  const [q] = useDebouncedValue(query.trim(), 150);
  const { data } = useQuery({
    queryKey: ['tenants', 'choices', q],
    enabled: enabled && account.platform_admin,
    placeholderData: keepPreviousData,
    queryFn: ({ signal }) => api.get('/api/v1/tenants', { q: q || undefined, limit: most, signal }),
  });
  const own = memberships
    .map(({ tenant: { slug, name }, role, suspended, enforcement }) => ({
      slug,
      name,
      note: suspended ? 'suspended' : role,
      inShadow: enforcement === 'shadow',
    }))
    .filter((choice) => fits(choice, query));
  const known = new Set(memberships.map(({ tenant }) => tenant.slug));
  const others = (data?.items ?? [])
    .filter(({ slug }) => !known.has(slug))
    .map(({ slug, name, suspended, enforcement }) => ({
      slug,
      name,
      note: suspended ? 'suspended' : undefined,
      inShadow: enforcement === 'shadow',
    }))
    .filter((choice) => fits(choice, query));
  return [...own, ...others];
}

function fits({ slug, name }: TenantChoice, query: string): boolean {
  const text = `${slug} ${name}`.toLowerCase();
  return query
    .trim()
    .toLowerCase()
    .split(/\s+/)
    .every((word) => text.includes(word));
}
