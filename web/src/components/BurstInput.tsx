import { TextInput } from '@mantine/core';
import { useState } from 'react';
import { exactNumber } from '~/domain/format';
import { parseNumber } from '~/domain/rate';

interface Props {
  label: string;
  value: number;
  onChange: (burst: number) => void;
  error?: string;
  disabled?: boolean;
}

/**
 * The text stays as typed: 1,5 must not become 15. Without a number the value is NaN, which limitProblems() explains.
 */
export function BurstInput({ label, value, onChange, error, disabled }: Props) {
  const [typed, setTyped] = useState<string | null>(null);
  const keeps = typed !== null && Object.is(parseNumber(typed), value);
  return (
    <TextInput
      label={label}
      value={keeps ? typed : Number.isNaN(value) ? '' : exactNumber(value)}
      inputMode="numeric"
      disabled={disabled}
      error={error}
      onChange={(event) => {
        setTyped(event.currentTarget.value);
        onChange(parseNumber(event.currentTarget.value));
      }}
      onBlur={() => !Number.isNaN(value) && setTyped(null)}
      classNames={{ input: 'numeric' }}
    />
  );
}
