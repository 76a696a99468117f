import { useQueryClient } from '@tanstack/react-query';
import { useRouter } from '@tanstack/react-router';
import { sessionKey } from '~/api/queries';
import type { Session } from '~/api/types';

/** Begins a session in this page, and leads to a path. */
export function useSignedIn(next: string): (session: Session) => void {
  const queries = useQueryClient();
  const router = useRouter();
  return (session) => {
    queries.clear(); // nothing that somebody else read here
    queries.setQueryData(sessionKey, session);
    router.history.push(next);
  };
}
