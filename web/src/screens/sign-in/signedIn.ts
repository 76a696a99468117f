import { useQueryClient } from '@tanstack/react-query';
import { useRouter } from '@tanstack/react-router';
import { sessionKey } from '~/api/queries';
import type { Session } from '~/api/types';
import { isIn, rememberTenant } from '~/session';

export function useSignedIn(next: string, tenant = ''): (session: Session) => void {
  const queries = useQueryClient();
  const router = useRouter();
  return (session) => {
    if (isIn(session, tenant)) rememberTenant(tenant);
    queries.clear(); // nothing that somebody else read here
    queries.setQueryData(sessionKey, session);
    router.history.push(next);
  };
}
