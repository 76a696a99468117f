import { IconGhost } from './icons';
import styles from './Outcome.module.css';

/** Marks a tenant whose rules deny nothing: in red, unlike a single shadow rule, because nobody is protected. */
export function InShadow() {
  return (
    <span className={styles.chip} data-tone="denied">
      <IconGhost size={13} stroke={2} aria-hidden /> In shadow
    </span>
  );
}
