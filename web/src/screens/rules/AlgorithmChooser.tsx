import { algorithms } from '~/domain/algorithm';
import { type Outcome, pictureInWords, pictureOf, span, windowLength } from '~/domain/picture';
import { type Algorithm, hasWindow } from '~/domain/rate';
import styles from './AlgorithmChooser.module.css';

interface Props {
  value: Algorithm;
  /** A token bucket refills in steps. */
  inSteps: boolean;
  disabled?: boolean;
  error?: string;
  onChange: (algorithm: Algorithm) => void;
}

/** The algorithms, each with what it does to the same traffic. */
export function AlgorithmChooser({ value, inSteps, disabled, error, onChange }: Props) {
  return (
    <fieldset className={styles.choices} disabled={disabled}>
      <legend>Algorithm</legend>
      {(Object.keys(algorithms) as Algorithm[]).map((algorithm) => {
        const { label, promise } = algorithms[algorithm];
        return (
          <label key={algorithm} className={styles.choice} data-chosen={algorithm === value || undefined}>
            <span className={styles.name}>
              <input
                type="radio"
                name="algorithm"
                value={algorithm}
                checked={algorithm === value}
                onChange={() => onChange(algorithm)}
              />
              {label}
            </span>
            <Picture algorithm={algorithm} inSteps={inSteps && algorithm === 'token_bucket'} />
            <span className={styles.promise}>{promise}</span>
          </label>
        );
      })}
      {error && (
        <p role="alert" className={styles.error}>
          {error}
        </p>
      )}
      <p className={styles.legend}>
        The same 35 requests meet a limit of 5. <span data-kind="allowed">allowed</span>{' '}
        <span data-kind="waits">waits, then allowed</span> <span data-kind="denied">denied</span>
      </p>
    </fieldset>
  );
}

const width = 240;
const height = 40;
const x = (at: number) => (at / span) * width;

/** The traffic over time: allowed requests stand on the line, denied ones are crosses below it. */
function Picture({ algorithm, inSteps }: { algorithm: Algorithm; inSteps: boolean }) {
  const outcomes = pictureOf(algorithm, inSteps);
  const boundaries =
    hasWindow(algorithm) && algorithm !== 'sliding_window_log'
      ? Array.from({ length: span / windowLength - 1 }, (_, index) => (index + 1) * windowLength)
      : [];
  return (
    <svg className={styles.picture} viewBox={`0 0 ${width} ${height}`} role="img" aria-label={pictureInWords(outcomes)}>
      {boundaries.map((at) => (
        <line key={at} className={styles.boundary} x1={x(at)} x2={x(at)} y1={0} y2={height} />
      ))}
      <line className={styles.axis} x1={0} x2={width} y1={26} y2={26} />
      {outcomes.map((one) => (
        <Mark key={one.at} {...one} />
      ))}
    </svg>
  );
}

function Mark({ at, allowed, goesAt, endsAt }: Outcome) {
  if (!allowed) {
    return <path className={styles.denied} d={`M${x(at) - 2} 30l4 4m0 -4l-4 4`} />;
  }
  const waits = goesAt > at;
  return (
    <>
      {waits && <path className={styles.waits} d={`M${x(at)} 26L${x(goesAt)} 8`} />}
      {endsAt > goesAt && <line className={styles.holds} x1={x(goesAt)} x2={x(endsAt)} y1={10} y2={10} />}
      <line className={styles.allowed} x1={x(goesAt)} x2={x(goesAt)} y1={waits ? 2 : 10} y2={waits ? 8 : 26} />
    </>
  );
}
