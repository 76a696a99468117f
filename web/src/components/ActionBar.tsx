import { useEffect } from 'react';
import styles from './ActionBar.module.css';

interface Props {
  label: string;
  text?: React.ReactNode;
  above?: React.ReactNode;
  children: React.ReactNode;
}

/** The buttons of a long form or a draft, which stay in sight at the foot of the page and cover nothing at its end. */
export function ActionBar({ label, text, above, children }: Props) {
  // The bar comes while its reader types, maybe in a field that it would cover.
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
