import type { Alert } from '~/api/types';
import { Ends } from '~/components/Ends';
import { Outcome } from '~/components/Outcome';
import styles from './AlertState.module.css';

/** Whether an alert is on, off, or silenced and until when. */
export function AlertState({ alert }: { alert: Alert }) {
  if (!alert.is_active) return <Outcome tone="neutral">Off</Outcome>;
  if (alert.silence) {
    return (
      <span className={styles.state}>
        <Outcome tone="degraded">Silenced</Outcome>
        <Ends at={alert.silence.until} />
      </span>
    );
  }
  return <Outcome tone="allowed">On</Outcome>;
}
