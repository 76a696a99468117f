import { useEffect, useState } from 'react';
import { busy } from '~/api/availability';
import { useStore } from '~/api/store';
import { IconAlert } from '~/components/icons';
import styles from './AwayBanner.module.css';

export function BusyBanner() {
  const denied = useStore(busy);
  const [now, setNow] = useState(Date.now);

  useEffect(() => {
    setNow(Date.now());
    const timer = setInterval(() => setNow(Date.now()), 500);
    if (!denied) clearInterval(timer);
    return () => clearInterval(timer);
  }, [denied]);

  const seconds = denied ? Math.ceil((denied.until - now) / 1000) : 0;
  if (!denied || seconds <= 0) return null;
  return (
    <div className={styles.banner} role="status">
      <IconAlert size={15} aria-hidden />
      <span>
        <strong>{denied.reason}.</strong> This page continues in {seconds} s.
      </span>
    </div>
  );
}
