import { useQueryClient } from '@tanstack/react-query';
import { useEffect } from 'react';
import { away } from '~/api/availability';
import { api } from '~/api/client';
import { useStore } from '~/api/store';
import { IconAlert } from '~/components/icons';
import styles from './AwayBanner.module.css';

const every = 2_000;

export function AwayBanner() {
  const isAway = useStore(away);
  const queries = useQueryClient();

  useEffect(() => {
    if (!isAway) return;
    const timer = setInterval(() => {
      // The client notes whether the server answered.
      api.get('/api/v1/session').then(
        () => queries.invalidateQueries(),
        () => undefined,
      );
    }, every);
    return () => clearInterval(timer);
  }, [isAway, queries]);

  if (!isAway) return null;
  return (
    <div className={styles.banner} role="status">
      <IconAlert size={15} aria-hidden />
      <span>
        <strong>Cannot reach the server.</strong> This page may be out of date. Your input is kept. Reconnecting …
      </span>
    </div>
  );
}
