import { NumberInput, Switch, TextInput } from '@mantine/core';
import type { Adapt } from '~/api/types';
import { FormError } from '~/components/FormDialog';
import { adaptSentence } from '~/domain/adapt';
import type { FieldProps } from './LimitFields';
import styles from './Rules.module.css';

const suggested: Adapt = { backend: '', floor_percent: 20, p99_ms: 300, error_percent: 1 };

export function AdaptFields({ draft, onChange, problem, disabled }: FieldProps) {
  const { adapt } = draft;
  const set = (part: Partial<Adapt>) => onChange({ adapt: { ...(adapt ?? suggested), ...part } });
  const number = (name: 'floor_percent' | 'p99_ms' | 'error_percent') => ({
    value: adapt?.[name] ?? '',
    disabled,
    error: problem(`/adapt/${name}`),
    onChange: (value: number | string) =>
      set({ [name]: value === '' && name !== 'floor_percent' ? null : Number(value) }),
  });
  return (
    <div>
      <Switch
        label="Adapt to a backend"
        description="Lowers the rate while the backend is overloaded."
        checked={adapt !== null}
        disabled={disabled}
        error={adapt === null ? problem('/adapt') : undefined}
        onChange={(event) => onChange({ adapt: event.currentTarget.checked ? suggested : null })}
      />
      {adapt && (
        <>
          <div className={styles.pair}>
            <TextInput
              label="Backend"
              description="As reports name it"
              placeholder="search"
              value={adapt.backend}
              disabled={disabled}
              error={problem('/adapt/backend')}
              onChange={(event) => set({ backend: event.currentTarget.value.trim() })}
            />
            <NumberInput
              label="Floor"
              description="Least share of the rate"
              suffix=" %"
              min={1}
              max={99}
              allowDecimal={false}
              {...number('floor_percent')}
            />
          </div>
          <div className={styles.pair}>
            <NumberInput
              label="Latency target"
              description="99 % of requests take at most"
              placeholder="none"
              suffix=" ms"
              min={1}
              max={60_000}
              allowDecimal={false}
              {...number('p99_ms')}
            />
            <NumberInput
              label="Error target"
              description="At most this share fails"
              placeholder="none"
              suffix=" %"
              min={0.01}
              max={50}
              decimalScale={2}
              {...number('error_percent')}
            />
          </div>
          {problem('/adapt') ? (
            <FormError>{problem('/adapt') ?? null}</FormError>
          ) : (
            <p className={styles.sentence}>{adaptSentence(draft, adapt)}</p>
          )}
        </>
      )}
    </div>
  );
}
