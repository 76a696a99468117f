import type { Alert } from '~/api/types';
import { Ends } from '~/components/Ends';
import { Outcome } from '~/components/Outcome';
import { useNow } from '~/components/Time';
import styles from './AlertState.module.css';
import { silenceOf } from './words';

export function AlertState({ alert }: { alert: Alert }) {
  const silence = silenceOf(alert, useNow(1000));
  if (!alert.is_active) return <Outcome tone="neutral">Off</Outcome>;
  if (silence) {
    return (
      <span className={styles.state}>
        <Outcome tone="degraded">Silenced</Outcome>
        <Ends at={silence.until} />
      </span>
    );
  }
  return <Outcome tone="allowed">On</Outcome>;
}
