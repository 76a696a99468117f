import { useQueryClient } from '@tanstack/react-query';
import { useEffect } from 'react';
import { useAway } from '~/api/away';
import { api } from '~/api/client';
import { IconAlert } from '~/components/icons';
import styles from './AwayBanner.module.css';

const every = 2_000;

export function AwayBanner() {
  const away = useAway();
  const queries = useQueryClient();

  useEffect(() => {
    if (!away) return;
    const timer = setInterval(() => {
      // The client notes whether the server answered.
      api.get('/api/v1/session').then(
        () => queries.invalidateQueries(),
        () => undefined,
      );
    }, every);
    return () => clearInterval(timer);
  }, [away, queries]);

  if (!away) return null;
  return (
    <div className={styles.banner} role="status">
      <IconAlert size={15} aria-hidden />
      <span>
        <strong>Cannot reach the server.</strong> This page may be out of date. Your input is kept. Reconnecting …
      </span>
    </div>
  );
}
