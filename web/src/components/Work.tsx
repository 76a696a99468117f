import { RelativeTime } from './Time';
import styles from './Work.module.css';

interface Props {
  work: { finished_at: string | null; error: string; next_try_at: string | null };
  label: string;
  /** How many parts are done, and of how many; left out where that is unknown. */
  done?: number;
  of?: number;
}

export function Work({ work: { finished_at, error, next_try_at }, label, done, of }: Props) {
  return (
    <>
      {error && (
        <p role="alert">
          {error}{' '}
          {next_try_at && (
            <>
              Next try: <RelativeTime at={next_try_at} />.
            </>
          )}
        </p>
      )}
      {!finished_at && <progress className={styles.bar} value={done} max={of} aria-label={label} />}
    </>
  );
}
