import { algorithms } from '~/domain/algorithm';
import { hasRate, type Limit, limitProblems, type Rate } from '~/domain/rate';
import { BurstInput } from './BurstInput';
import type { Wrong } from './FormDialog';
import styles from './LimitPair.module.css';
import { RateInput } from './RateInput';

interface Props {
  limit: Limit;
  /** Errors of the server, for the fields below the JSON pointer `at`. */
  wrong?: Wrong;
  at?: string;
  onChange: (part: Partial<Rate> & { burst_capacity?: number }) => void;
}

export function LimitPair({ limit, wrong, at = '', onChange }: Props) {
  const { algorithm = 'token_bucket', burst_capacity } = limit;
  const problems = limitProblems(limit);
  return (
    <div className={styles.pair}>
      {hasRate(algorithm) && (
        <RateInput
          label="Rate"
          value={limit}
          error={problems.rate ?? wrong?.(`${at}/rate_per_second`)}
          onChange={onChange}
        />
      )}
      <BurstInput
        label={algorithms[algorithm].burst}
        value={burst_capacity}
        error={problems.burst ?? wrong?.(`${at}/burst_capacity`)}
        onChange={(burst) => onChange({ burst_capacity: burst })}
      />
    </div>
  );
}
