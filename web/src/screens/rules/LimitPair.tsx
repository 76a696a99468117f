import { BurstInput } from '~/components/BurstInput';
import { RateInput } from '~/components/RateInput';
import { algorithms } from '~/domain/algorithm';
import { hasRate, limitProblems } from '~/domain/rate';
import styles from './Rules.module.css';
import type { RuleDraft } from './ruleDraft';

interface Props {
  draft: RuleDraft;
  onChange: (part: Partial<RuleDraft>) => void;
}

export function LimitPair({ draft, onChange }: Props) {
  const wrong = limitProblems(draft);
  return (
    <div className={styles.pair}>
      {hasRate(draft.algorithm) && <RateInput label="Rate" value={draft} error={wrong.rate} onChange={onChange} />}
      <BurstInput
        label={algorithms[draft.algorithm].burst}
        value={draft.burst_capacity}
        error={wrong.burst}
        onChange={(burst_capacity) => onChange({ burst_capacity })}
      />
    </div>
  );
}
