import styles from './Waiting.module.css';

export function Waiting({ children }: { children: React.ReactNode }) {
  return (
    <p role="status" className={styles.waiting}>
      {children}
    </p>
  );
}
