import { NativeSelect, TextInput } from '@mantine/core';
import { useState } from 'react';
import { BurstInput } from '~/components/BurstInput';
import { RateInput } from '~/components/RateInput';
import { algorithms, converted, fitted, type LimitDraft, presets } from '~/domain/algorithm';
import { meterUnit } from '~/domain/meter';
import { upper } from '~/domain/pattern';
import {
  type Algorithm,
  hasRate,
  hasWindow,
  isValid,
  type LimitProblems,
  limitProblems,
  limitSentence,
} from '~/domain/rate';
import { calendarUnits, isCalendar, ordinal, weekdays } from '~/domain/window';
import styles from './Rules.module.css';
import { limitOf, type RuleDraft } from './ruleDraft';

export interface FieldProps {
  draft: RuleDraft;
  onChange: (change: Partial<RuleDraft>) => void;
  problem: (pointer: string) => string | undefined;
  disabled?: boolean;
}

type Text = { [K in keyof RuleDraft]: RuleDraft[K] extends string | null ? K : never }[keyof RuleDraft];

// These fields are null when they are emptied. An emptied length stays '', which is an error.
const optional: (keyof RuleDraft)[] = ['refill_interval', 'window_zone', 'failure_mode'];

/** The props of an input by its field: `{...input('charge')}`. */
export function inputsOf({ draft, onChange, problem, disabled }: FieldProps) {
  return (name: Text, wrong?: string) => ({
    value: draft[name] ?? '',
    disabled,
    error: problem(`/${name}`) ?? wrong,
    onChange: ({ currentTarget: { value } }: React.ChangeEvent<{ value: string }>) =>
      onChange({ [name]: value === '' && optional.includes(name) ? null : value }),
  });
}

export type Kept = Partial<Record<Algorithm, LimitDraft>>;

interface LimitProps extends FieldProps {
  kept: Kept;
  onKeep: (kept: Kept) => void;
}

export function LimitFields({ kept, onKeep, ...props }: LimitProps) {
  const { draft, problem, disabled } = props;
  const wrong = limitProblems(draft);
  const { algorithm } = draft;
  const input = inputsOf(props);
  // Trying another algorithm loses nothing of this one.
  function onChange(part: Partial<RuleDraft>) {
    if (part.algorithm && part.algorithm !== algorithm) onKeep({ ...kept, [algorithm]: limitOf(draft) });
    props.onChange(part);
  }
  return (
    <>
      <NativeSelect
        label="Algorithm"
        description={algorithms[algorithm].promise}
        {...input('algorithm')}
        data={Object.entries(algorithms).map(([value, { label }]) => ({ value, label }))}
        onChange={(event) => {
          const chosen = event.currentTarget.value as Algorithm;
          onChange(kept[chosen] ?? converted(limitOf(draft), chosen));
        }}
      />
      <div className={styles.pair}>
        {hasRate(algorithm) && (
          <RateInput
            label="Rate"
            value={draft}
            disabled={disabled}
            error={problem('/rate_per_second') ?? wrong.rate}
            onChange={onChange}
          />
        )}
        <BurstInput
          label={algorithms[algorithm].burst.replace('Requests', upper(meterUnit(draft.meter) || 'requests'))}
          value={draft.burst_capacity}
          disabled={disabled}
          error={problem('/burst_capacity') ?? wrong.burst}
          onChange={(burst_capacity) => onChange({ burst_capacity })}
        />
        {algorithm === 'token_bucket' && (
          <TextInput
            label="Refill interval"
            placeholder="continuous"
            description="Tokens come in steps, such as 10s"
            {...input('refill_interval', wrong.refill_interval)}
          />
        )}
        {algorithm === 'concurrency' && (
          <TextInput
            label="Longest hold"
            description="A place that nobody releases is free after this"
            {...input('max_hold', wrong.max_hold)}
          />
        )}
      </div>
      {hasWindow(algorithm) && <WindowFields {...props} wrong={wrong} />}
      {algorithm === 'fixed_window' && <NotifyAt {...props} wrong={wrong} />}
      {!disabled && (
        <p className={styles.presets}>
          <span>Preset:</span>
          {presets.map(({ label, limit }) => (
            <button key={label} type="button" className="link-button" onClick={() => onChange(limit(draft))}>
              {label}
            </button>
          ))}
        </p>
      )}
      {isValid(draft) && (
        <p className={styles.sentence}>
          <strong>{limitSentence(draft)}</strong>
        </p>
      )}
    </>
  );
}

const lengths = [
  { value: '1s', label: 'second' },
  { value: '1m', label: 'minute' },
  { value: '1h', label: 'hour' },
  { value: '24h', label: '24 hours' },
];

/** The window: a length or, for fixed windows, a unit of the calendar with its zone and first day. */
function WindowFields({ wrong, ...props }: FieldProps & { wrong: LimitProblems }) {
  const { draft, onChange, problem, disabled } = props;
  const { window, algorithm, window_start_day } = draft;
  const input = inputsOf(props);
  const calendar = algorithm === 'fixed_window' ? calendarUnits : [];
  const [typing, setTyping] = useState(false);
  const known = [...calendar, ...lengths.map(({ value }) => value)].some((value) => value === window);
  const own = typing || !known;
  const days =
    window === 'week'
      ? weekdays.map((label, index) => ({ value: String(index + 1), label }))
      : Array.from({ length: 31 }, (_, index) => ({ value: String(index + 1), label: ordinal(index + 1) }));
  const change = (part: Partial<RuleDraft>) => onChange(fitted({ ...draft, ...part }));
  return (
    <div className={styles.pair}>
      <NativeSelect
        label="Window"
        {...input('window', wrong.window)}
        {...(own && { value: 'own', error: undefined })}
        data={[
          ...lengths,
          ...calendar.map((value) => ({ value, label: `calendar ${value}` })),
          { value: 'own', label: 'another length' },
        ]}
        onChange={(event) => {
          const chosen = event.currentTarget.value;
          setTyping(chosen === 'own');
          change({ window: chosen === 'own' ? '5m' : chosen, window_start_day: null });
        }}
      />
      {own && <TextInput label="Length" description="Such as 30s, 5m or 24h" {...input('window', wrong.window)} />}
      {isCalendar(window) && (
        <TextInput label="Time zone" placeholder="UTC" list="time-zones" {...input('window_zone')} />
      )}
      {(window === 'week' || window === 'month') && (
        <NativeSelect
          label="Begins on"
          value={String(window_start_day ?? 1)}
          disabled={disabled}
          error={problem('/window_start_day')}
          data={days}
          onChange={(event) => {
            const day = Number(event.currentTarget.value);
            onChange({ window_start_day: day === 1 ? null : day });
          }}
        />
      )}
      <datalist id="time-zones">
        {Intl.supportedValuesOf('timeZone').map((zone) => (
          <option key={zone} value={zone} />
        ))}
      </datalist>
    </div>
  );
}

function NotifyAt({ draft, onChange, problem, disabled, wrong }: FieldProps & { wrong: LimitProblems }) {
  const [typed, setTyped] = useState<string | null>(null);
  const shares = draft.notify_at.join(', ');
  return (
    <TextInput
      label="Record when usage reaches (%)"
      placeholder="80, 100"
      value={typed ?? shares}
      disabled={disabled}
      error={problem('/notify_at') ?? wrong.notify_at}
      onChange={(event) => {
        setTyped(event.currentTarget.value);
        const numbers = event.currentTarget.value.split(/[\s,%]+/).filter(Boolean);
        onChange({ notify_at: numbers.map(Number) });
      }}
      onBlur={() => !wrong.notify_at && setTyped(null)}
    />
  );
}
