import { Chip, NativeSelect } from '@mantine/core';
import type { Rule } from '~/api/types';
import { MomentField } from '~/components/MomentField';
import { useNow } from '~/components/Time';
import { shortTime } from '~/domain/format';
import { type Limit, limitSentence, times } from '~/domain/rate';
import { endInWords } from './draft';
import { type Expiry, expiresAt, lengths, withLength } from './expiry';
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

/** How long the override lasts. The end that is saved can stay as it is. */
export function Duration({ expiry, error, onChange }: DurationProps) {
  const choices = lengths.map(({ value, label }) => ({ value, label }));
  const { saved, length } = expiry;
  const now = useNow();
  const end = expiresAt(expiry, now);
  if (saved !== undefined) {
    choices.unshift({
      value: 'same',
      label: saved ? `Unchanged: until ${endInWords(saved)}` : 'Unchanged: no end',
    });
  }
  return (
    <div className={styles.ends}>
      <NativeSelect
        label="Duration"
        description={end && length !== 'until' && length !== 'same' && `Ends ${shortTime(Date.parse(end))}`}
        inputWrapperOrder={['label', 'input', 'description', 'error']}
        value={length}
        data={choices}
        error={length === 'until' ? undefined : error}
        onChange={(event) => onChange(withLength(expiry, event.currentTarget.value, now))}
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
