import styles from './DialogButtons.module.css';

export function DialogButtons({ children }: { children: React.ReactNode }) {
  return <div className={styles.buttons}>{children}</div>;
}
