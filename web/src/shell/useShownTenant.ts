import { useLocation, useParams } from '@tanstack/react-router';
import { firstTenant, useSession } from '~/session';

/** On the profile it is the last one. */
export function useShownTenant(): string | undefined {
  const { tenant } = useParams({ strict: false });
  const { pathname } = useLocation();
  const { memberships } = useSession();
  return tenant ?? (pathname === '/profile' ? firstTenant(memberships) : undefined);
}
