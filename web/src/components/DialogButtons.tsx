import styles from './DialogButtons.module.css';

/** The buttons of a form in a dialog. They stay in sight at its foot while a long form scrolls. */
export function DialogButtons({ children }: { children: React.ReactNode }) {
  return <div className={styles.buttons}>{children}</div>;
}
