import { useEffect, useState } from 'react';
import { useBusy } from '~/api/busy';
import { IconAlert } from '~/components/icons';
import styles from './AwayBanner.module.css';

export function BusyBanner() {
  const busy = useBusy();
  const [now, setNow] = useState(Date.now);

  useEffect(() => {
    setNow(Date.now());
    const timer = setInterval(() => setNow(Date.now()), 500);
    if (!busy) clearInterval(timer);
    return () => clearInterval(timer);
  }, [busy]);

  const seconds = busy ? Math.ceil((busy.until - now) / 1000) : 0;
  if (!busy || seconds <= 0) return null;
  return (
    <div className={styles.banner} role="status">
      <IconAlert size={15} aria-hidden />
      <span>
        <strong>{busy.reason}.</strong> This page continues in {seconds} s.
      </span>
    </div>
  );
}
