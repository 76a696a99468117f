import { Chip } from '@mantine/core';
import type { Rule } from '~/api/types';
import { DurationField } from '~/components/DurationField';
import { MomentField } from '~/components/MomentField';
import { useNow } from '~/components/Time';
import { type Limit, limitSentence, times } from '~/domain/rate';
import { endInWords } from './draft';
import { type Expiry, ends, expiresAt, withLength } from './expiry';
import styles from './OverrideEditor.module.css';

interface MultiplierProps {
  rule: Rule;
  limit: Limit;
  onChange: (limit: Limit) => void;
}

const factors = [2, 5, 10];

export function Multiplier({ rule, limit, onChange }: MultiplierProps) {
  const chosen = factors.find((factor) => same(times(rule, factor), limit));
  return (
    <Chip.Group
      value={chosen === undefined ? '' : String(chosen)}
      onChange={(factor) => onChange(times(rule, Number(factor)))}
    >
      <fieldset className={styles.times}>
        <legend className="aside">Multiple of the rule’s limit</legend>
        {factors.map((factor) => (
          <Chip key={factor} value={String(factor)} variant="light" size="xs">
            {factor} times
          </Chip>
        ))}
        <span className="soft">the rule’s {limitSentence(rule)}</span>
      </fieldset>
    </Chip.Group>
  );
}

function same(a: Limit, b: Limit): boolean {
  return a.rate_per_second === b.rate_per_second && a.burst_capacity === b.burst_capacity;
}

interface DurationProps {
  expiry: Expiry;
  error: string | undefined;
  onChange: (expiry: Expiry) => void;
}

export function Duration({ expiry, error, onChange }: DurationProps) {
  const { saved, length } = expiry;
  const now = useNow();
  const end = expiresAt(expiry, now);
  const unchanged = saved ? `Unchanged: until ${endInWords(saved)}` : 'Unchanged: no end';
  return (
    <div className={styles.ends}>
      <DurationField
        value={length}
        onChange={(length) => onChange(withLength(expiry, length, now))}
        end={end && length !== 'until' && length !== 'same' ? Date.parse(end) : null}
        error={length === 'until' ? undefined : error}
        before={saved === undefined ? [] : [{ value: 'same', label: unchanged }]}
        after={ends}
      />
      {length === 'until' && (
        <MomentField
          label="Until"
          value={expiry.until}
          error={end === undefined ? 'Choose a time in the future.' : error}
          onChange={(until) => onChange({ ...expiry, until })}
        />
      )}
    </div>
  );
}
