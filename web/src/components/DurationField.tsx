import { NativeSelect } from '@mantine/core';
import { shortTime } from '~/domain/format';
import { lengths } from '~/domain/lengths';
import type { Choice } from '~/domain/rule';

interface Props {
  value: string;
  onChange: (value: string) => void;
  /** In milliseconds; null where it is said otherwise. */
  end: number | null;
  error?: string;
  before?: Choice[];
  after?: Choice[];
}

export function DurationField({ value, onChange, end, error, before = [], after = [] }: Props) {
  return (
    <NativeSelect
      label="Duration"
      description={end !== null && `Ends ${shortTime(end)}`}
      inputWrapperOrder={['label', 'input', 'description', 'error']}
      value={value}
      data={[...before, ...lengths.map(({ value, label }) => ({ value, label })), ...after]}
      error={error}
      onChange={(event) => onChange(event.currentTarget.value)}
    />
  );
}
