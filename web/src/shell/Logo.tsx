import styles from './Logo.module.css';

export function Logo() {
  return (
    <span className={styles.logo}>
      <svg width="20" height="20" viewBox="0 0 32 32" aria-hidden="true">
        <rect width="32" height="32" rx="8" className={styles.square} />
        <path d="M7 9.5h18M7 16h9M7 22.5h18M21 13.5v5" className={styles.lines} />
      </svg>
      Sluice
    </span>
  );
}
