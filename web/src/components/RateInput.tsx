import { NativeSelect, TextInput } from '@mantine/core';
import { useState } from 'react';
import { exact, parseRate, perSecond, perUnit, type Rate, type RateUnit, units } from '~/domain/rate';
import styles from './RateInput.module.css';

interface Props {
  label: string;
  value: Rate;
  onChange: (rate: Rate) => void;
  error?: string;
  disabled?: boolean;
}

/** Typing "1000/day" sets number and unit. The text stays as typed; without a rate the value is NaN. */
export function RateInput({ label, value, onChange, error, disabled }: Props) {
  const shown = perUnit(value);
  const [typed, setTyped] = useState<string | null>(null);
  const means = typed === null ? null : parseRate(typed, value.rate_unit);
  const keeps =
    typed !== null &&
    (means === null ? Number.isNaN(value.rate_per_second) : means.rate_per_second === value.rate_per_second);
  const text = keeps ? typed : Number.isNaN(shown.number) ? '' : exact.format(shown.number);

  function read(text: string, unit: RateUnit) {
    onChange(parseRate(text, unit) ?? { rate_per_second: Number.NaN, rate_unit: unit });
  }

  return (
    <div className={styles.rate}>
      <TextInput
        label={label}
        value={text}
        inputMode="decimal"
        disabled={disabled}
        error={error}
        onChange={(event) => {
          setTyped(event.currentTarget.value);
          read(event.currentTarget.value, value.rate_unit);
        }}
        onBlur={() => means && setTyped(null)}
        classNames={{ input: 'numeric' }}
      />
      <NativeSelect
        aria-label={`${label}: unit`}
        value={shown.unit}
        disabled={disabled}
        data={units.map((unit) => ({ value: unit, label: `per ${unit}` }))}
        onChange={(event) => {
          const unit = event.currentTarget.value as RateUnit;
          if (keeps && means === null) read(typed, unit);
          else onChange({ rate_per_second: perSecond(shown.number, unit), rate_unit: unit });
        }}
      />
    </div>
  );
}
