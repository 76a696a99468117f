import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { IconClock } from '~/components/icons';
import { Awaited } from '~/components/states';
import { RelativeTime } from '~/components/Time';
import { plural } from '~/domain/format';
import styles from './EndingSoon.module.css';
import { endingSoonQuery } from './queries';

export function EndingSoon({ tenant }: { tenant: string }) {
  const { data, isPending } = useQuery(endingSoonQuery(tenant));
  if (isPending) return <Awaited />;
  if (!data?.first?.expires_at) return null;
  const { count, hasMore, first } = data;
  return (
    <section aria-label="Overrides ending soon" className={styles.soon}>
      <IconClock size={15} aria-hidden />
      <p>
        <Link to="/t/$tenant/overrides" params={{ tenant }} search={{ ends: 'soon' }}>
          {hasMore && 'More than '}
          {plural(count, 'override')}
        </Link>{' '}
        {count === 1 && !hasMore ? 'ends' : 'end'} within 7 days, the first{' '}
        <RelativeTime at={first?.expires_at ?? ''} />.
      </p>
    </section>
  );
}
