import { isStatus, sentence } from '~/api/problem';
import { plural } from '~/domain/format';
import type { Tail } from './useTail';
import styles from './Violations.module.css';

/** Whether the stream lives, and what it brought. */
export function LiveLine({ tail: { state, rows, skipped, error } }: { tail: Tail }) {
  return (
    <p className={styles.live} data-state={state} role="status">
      <span className={styles.dot} aria-hidden />
      {state === 'stopped' ? (
        isStatus(error, 429) ? (
          'You watch in four places already; close one of them.'
        ) : (
          sentence(error)
        )
      ) : state === 'live' ? (
        <>Live. {plural(rows.length, 'violation')} arrived since.</>
      ) : (
        'Connecting …'
      )}
      {skipped && ' More arrive than can be shown: the latest 500 of each second are.'}
    </p>
  );
}
