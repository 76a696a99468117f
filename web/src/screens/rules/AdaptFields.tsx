import { NumberInput, Switch, TextInput } from '@mantine/core';
import type { Adapt } from '~/api/types';
import { adaptSentence } from '~/domain/adapt';
import type { FieldProps } from './LimitFields';
import styles from './Rules.module.css';

const suggested: Adapt = { backend: '', floor_percent: 20, p99_ms: 300, error_percent: 1 };

export function AdaptFields({ draft, onChange, problem, disabled }: FieldProps) {
  const { adapt } = draft;
  const set = (part: Partial<Adapt>) => onChange({ adapt: { ...(adapt ?? suggested), ...part } });
  const number = (value: number | string) => (value === '' ? null : Number(value));
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
              value={adapt.floor_percent}
              disabled={disabled}
              error={problem('/adapt/floor_percent')}
              onChange={(value) => set({ floor_percent: Number(value) })}
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
              value={adapt.p99_ms ?? ''}
              disabled={disabled}
              error={problem('/adapt/p99_ms')}
              onChange={(value) => set({ p99_ms: number(value) })}
            />
            <NumberInput
              label="Error target"
              description="At most this share fails"
              placeholder="none"
              suffix=" %"
              min={0.01}
              max={50}
              decimalScale={2}
              value={adapt.error_percent ?? ''}
              disabled={disabled}
              error={problem('/adapt/error_percent')}
              onChange={(value) => set({ error_percent: number(value) })}
            />
          </div>
          {problem('/adapt') ? (
            <p role="alert" className={styles.error}>
              {problem('/adapt')}
            </p>
          ) : (
            <p className={styles.sentence}>{adaptSentence(draft, adapt)}</p>
          )}
        </>
      )}
    </div>
  );
}
