import { useEffect } from 'react';
import styles from './ActionBar.module.css';

interface Props {
  label: string;
  text?: React.ReactNode;
  above?: React.ReactNode;
  children: React.ReactNode;
}

export function ActionBar({ label, text, above, children }: Props) {
  // The bar appears while its reader types, maybe in a field that it would cover.
  useEffect(() => {
    if (document.activeElement !== document.body) {
      document.activeElement?.scrollIntoView?.({ block: 'nearest' });
    }
  }, []);
  return (
    <section className={styles.bar} aria-label={label}>
      {above && <div className={styles.above}>{above}</div>}
      {text && <strong>{text}</strong>}
      <div className={styles.buttons}>{children}</div>
    </section>
  );
}
