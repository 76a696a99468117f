import styles from './ActionBar.module.css';

interface Props {
  /** What the bar is of, for screen readers: "Unsaved changes". */
  label: string;
  /** Before the buttons. */
  text?: React.ReactNode;
  children: React.ReactNode;
}

/** The buttons of a long form or a draft. They stay in sight at the foot of the page, and cover nothing at its end. */
export function ActionBar({ label, text, children }: Props) {
  return (
    <section className={styles.bar} aria-label={label}>
      {text && <strong>{text}</strong>}
      <div>{children}</div>
    </section>
  );
}
