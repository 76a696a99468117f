import { useDebouncedValue } from '@mantine/hooks';
import { keepPreviousData, useQuery } from '@tanstack/react-query';
import { api } from '~/api/client';
import type { Tenant } from '~/api/types';
import { hasWords } from '~/domain/pattern';
import type { Role } from '~/domain/roles';
import { useSession } from '~/session';

type Choosable = Pick<Tenant, 'slug' | 'name' | 'suspended' | 'enforcement'>;

interface TenantChoice {
  slug: string;
  name: string;
  note?: string;
  inShadow: boolean;
}

const most = 20;

export function useTenantChoices(query: string, enabled = true): TenantChoice[] {
  const { account, memberships } = useSession();
  const [q] = useDebouncedValue(query.trim(), 150);
  const { data } = useQuery({
    queryKey: ['tenants', 'choices', q],
    enabled: enabled && account.platform_admin,
    placeholderData: keepPreviousData,
    queryFn: ({ signal }) => api.get('/api/v1/tenants', { q: q || undefined, limit: most, signal }),
  });
  const own = memberships.map(({ tenant, role, ...state }) => choiceOf({ ...tenant, ...state }, role));
  const known = new Set(own.map(({ slug }) => slug));
  const others = (data?.items ?? []).filter(({ slug }) => !known.has(slug)).map((tenant) => choiceOf(tenant));
  return [...own, ...others].filter(({ slug, name }) => hasWords(query, slug, name));
}

function choiceOf({ slug, name, suspended, enforcement }: Choosable, role?: Role): TenantChoice {
  return { slug, name, note: suspended ? 'suspended' : role, inShadow: enforcement === 'shadow' };
}
