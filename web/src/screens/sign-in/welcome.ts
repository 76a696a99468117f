import { useQueryClient } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { sessionKey } from '~/api/queries';
import type { Session } from '~/api/types';

export function useWelcome(slug: string): (session: Session) => Promise<void> {
  const queries = useQueryClient();
  const navigate = useNavigate();
  return async (session) => {
    queries.clear();
    queries.setQueryData(sessionKey, session);
    await navigate({ to: '/t/$tenant/overview', params: { tenant: slug } });
  };
}
