import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useNavigate, useParams } from '@tanstack/react-router';
import { createContext, useContext } from 'react';
import { api } from '~/api/client';
import { sessionKey, sessionQuery } from '~/api/queries';
import type { Membership, Session } from '~/api/types';
import { type Permissions, permissions } from '~/domain/roles';

/** Who is signed in, as the shell drew it. */
export const SessionContext = createContext<Session | null>(null);

/**
 * Who is signed in. Below the shell there always is somebody. That is why the shell hands it down: whatever
 * is drawn for the first time just when the session ends would find nobody in the cache, before the shell does.
 */
export function useSession(): Session {
  const session = useContext(SessionContext);
  if (!session) throw new Error('useSession outside of the shell');
  return session;
}

/** The slug of the tenant that the screen is about. */
export function useTenant(): string {
  const { tenant } = useParams({ strict: false });
  if (!tenant) throw new Error('useTenant outside of a tenant');
  return tenant;
}

/**
 * What the reader may do in the tenant. Screens ask it before they draw a button, so that nobody sees
 * one that would fail: `const { edit } = useRole()`.
 */
export function useRole(): Permissions {
  const { tenant } = useParams({ strict: false });
  const { data } = useQuery(sessionQuery);
  if (data?.account.platform_admin) return permissions('owner');
  const membership = data?.memberships.find((one) => one.tenant.slug === tenant);
  if (!membership) return permissions('viewer');
  return membership.suspended
    ? { ...permissions('viewer'), role: membership.role }
    : permissions(membership.role);
}

/** The membership to begin with: the tenant of the last visit, else the first. */
export function firstTenant(memberships: Membership[]): string | undefined {
  const last = localStorage.getItem('sluice-tenant');
  const found = memberships.find((one) => one.tenant.slug === last) ?? memberships[0];
  return found?.tenant.slug;
}

export function rememberTenant(slug: string): void {
  localStorage.setItem('sluice-tenant', slug);
}

/** Ends the session here and forgets everything that was read in it. */
export function useSignOut(): () => Promise<void> {
  const queries = useQueryClient();
  const navigate = useNavigate();
  return async () => {
    await api.DELETE('/api/v1/session');
    queries.clear();
    queries.setQueryData(sessionKey, null);
    await navigate({ to: '/sign-in' });
  };
}
