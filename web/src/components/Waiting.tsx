import styles from './Waiting.module.css';

/** Says what the page waits for, beside a dot that pulses. */
export function Waiting({ children }: { children: React.ReactNode }) {
  return (
    <p role="status" className={styles.waiting}>
      {children}
    </p>
  );
}
