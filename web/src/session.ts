import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useNavigate, useParams } from '@tanstack/react-router';
import { createContext, useContext } from 'react';
import { api } from '~/api/client';
import { sessionKey, sessionQuery } from '~/api/queries';
import type { Membership, Session } from '~/api/types';
import { type Permissions, permissions } from '~/domain/roles';

export const SessionContext = createContext<Session | null>(null);

/** Never null below the shell. The query cache is empty for a moment when the session ends, so the context has it. */
export function useSession(): Session {
  const session = useContext(SessionContext);
  if (!session) throw new Error('useSession outside of the shell');
  return session;
}

export function useTenant(): string {
  const { tenant } = useParams({ strict: false });
  if (!tenant) throw new Error('useTenant outside of a tenant');
  return tenant;
}

/** Screens hide buttons that would fail: `const { edit } = useRole()`. */
export function useRole(): Permissions {
  const { tenant } = useParams({ strict: false });
  const { data } = useQuery(sessionQuery);
  if (data?.account.platform_admin) return permissions('owner');
  const membership = data?.memberships.find((one) => one.tenant.slug === tenant);
  if (!membership) return permissions('viewer');
  return membership.suspended ? { ...permissions('viewer'), role: membership.role } : permissions(membership.role);
}

/** Whether a tenant, or everything, is closed to the account until it has a second factor. */
export function needsFactor({ memberships, second_factor_required, two_factors }: Session, tenant?: string): boolean {
  if (two_factors) return false;
  const membership = memberships.find((one) => one.tenant.slug === tenant);
  return second_factor_required || !!membership?.second_factor_required;
}

export function firstTenant(memberships: Membership[]): string | undefined {
  const last = lastTenant();
  const found = memberships.find((one) => one.tenant.slug === last) ?? memberships[0];
  return found?.tenant.slug;
}

function lastTenant(): string | undefined {
  try {
    return localStorage.getItem('sluice-tenant') ?? undefined;
  } catch {
    return undefined; // the browser keeps nothing for this site
  }
}

export function rememberTenant(slug: string): void {
  try {
    localStorage.setItem('sluice-tenant', slug);
  } catch {
    // the browser keeps nothing for this site
  }
}

/** To others the tenant does not exist, and is not remembered. */
export function isIn({ account, memberships, has_more_memberships }: Session, slug: string): boolean {
  return account.platform_admin || has_more_memberships || memberships.some(({ tenant }) => tenant.slug === slug);
}

export function signInTenant(next = ''): string | undefined {
  return /^\/t\/([a-z0-9-]{1,63})(?![^/?#])/.exec(next)?.[1] ?? lastTenant();
}

export function signInAddress(slug: string): string {
  return `${window.location.origin}/sign-in/${slug}`;
}

export function useSignOut(): () => Promise<void> {
  const queries = useQueryClient();
  const navigate = useNavigate();
  return async () => {
    const session = queries.getQueryData<Session | null>(sessionKey);
    await api.delete('/api/v1/session');
    queries.clear();
    if (session?.sign_out_url) {
      window.location.assign(session.sign_out_url); // out at the provider too
      return;
    }
    queries.setQueryData(sessionKey, null);
    const slug = signInTenant();
    // The callers asked whether drafts may be lost.
    await navigate({
      ...(slug ? { to: '/sign-in/$slug', params: { slug } } : { to: '/sign-in' }),
      ignoreBlocker: true,
    });
  };
}
