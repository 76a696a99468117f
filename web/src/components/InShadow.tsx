import { IconGhost } from './icons';
import styles from './Outcome.module.css';

export function InShadow() {
  return (
    <span className={styles.chip} data-tone="denied">
      <IconGhost size={13} stroke={2} aria-hidden /> In shadow
    </span>
  );
}
