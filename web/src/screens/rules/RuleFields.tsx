import { NativeSelect, SegmentedControl, Switch, Textarea } from '@mantine/core';
import { BurstInput } from '~/components/BurstInput';
import { RateInput } from '~/components/RateInput';
import { limitProblems, limitSentence } from '~/domain/rate';
import { actionLabels, choicesOf, failureModeLabels, fieldLabels, modeLabels } from '~/domain/rule';
import styles from './Rules.module.css';
import { burstCredit, type RuleDraft, strictPacing } from './ruleDraft';

interface Props {
  draft: RuleDraft;
  onChange: (change: Partial<RuleDraft>) => void;
  /** The server’s error for a field. */
  problem: (pointer: string) => string | undefined;
  disabled?: boolean;
  /** The saved rule denies; saving the draft ends that. */
  stops?: boolean;
}

const effects = {
  enforce: 'Requests above the limit are denied.',
  shadow: 'The rule reports what it would deny, and denies nothing.',
};

const blocks = 'Every matching request is denied.';

/** The fields of a rule that can change. */
export function RuleFields({ draft, onChange, problem, disabled, stops }: Props) {
  return (
    <div className={styles.form}>
      <NativeSelect
        label="Action"
        value={draft.action}
        disabled={disabled}
        error={problem('/action')}
        data={choicesOf(actionLabels)}
        onChange={(event) => onChange(withAction(draft, event.currentTarget.value as RuleDraft['action']))}
      />
      {draft.action === 'limit' && (
        <LimitFields draft={draft} onChange={onChange} problem={problem} disabled={disabled} />
      )}
      {draft.action !== 'bypass' && (
        <div>
          <SegmentedControl
            fullWidth
            size="xs"
            aria-label="Mode"
            value={draft.mode}
            disabled={disabled}
            onChange={(mode) => onChange({ mode: mode as RuleDraft['mode'] })}
            data={choicesOf(modeLabels)}
          />
          <p className="field-note">
            {draft.action === 'block' && draft.mode === 'enforce' ? blocks : effects[draft.mode]}
          </p>
          {stops && draft.mode === 'shadow' && (
            <p className={styles.warning}>After you save, this rule denies nothing.</p>
          )}
        </div>
      )}
      {draft.action === 'limit' && (
        <NativeSelect
          label={fieldLabels.failure_mode}
          value={draft.failure_mode ?? ''}
          disabled={disabled}
          error={problem('/failure_mode')}
          data={[{ value: '', label: 'Tenant default' }, ...choicesOf(failureModeLabels)]}
          onChange={(event) =>
            onChange({ failure_mode: (event.currentTarget.value || null) as RuleDraft['failure_mode'] })
          }
        />
      )}
      <Textarea
        label="Description"
        autosize
        minRows={2}
        value={draft.description}
        disabled={disabled}
        error={problem('/description')}
        onChange={(event) => onChange({ description: event.currentTarget.value })}
      />
      <Switch
        label="On"
        checked={draft.is_active}
        disabled={disabled}
        onChange={(event) => onChange({ is_active: event.currentTarget.checked })}
      />
    </div>
  );
}

function LimitFields({ draft, onChange, problem, disabled }: Props) {
  const wrong = limitProblems(draft);
  return (
    <>
      <div className={styles.pair}>
        <RateInput
          label="Rate"
          value={draft}
          disabled={disabled}
          error={problem('/rate_per_second') ?? wrong.rate}
          onChange={onChange}
        />
        <BurstInput
          label="Burst"
          value={draft.burst_capacity}
          disabled={disabled}
          error={problem('/burst_capacity') ?? wrong.burst}
          onChange={(burst_capacity) => onChange({ burst_capacity })}
        />
      </div>
      {!disabled && !wrong.rate && (
        <p className={styles.presets}>
          <span>Preset:</span>
          <button type="button" onClick={() => onChange(strictPacing(draft))}>
            Strict pacing (burst 1)
          </button>
          <button type="button" onClick={() => onChange(burstCredit(draft))}>
            Burst credit (5 min of the rate)
          </button>
        </p>
      )}
      {!wrong.rate && !wrong.burst && (
        <p className={styles.sentence}>
          <strong>{limitSentence(draft)}</strong>. A bucket of {draft.burst_capacity.toLocaleString('en')}{' '}
          tokens refills at this rate. Each request takes one.
        </p>
      )}
    </>
  );
}

/** The change to another action. A new limit starts with common values. */
function withAction(draft: RuleDraft, action: RuleDraft['action']): Partial<RuleDraft> {
  if (action !== 'limit' || draft.rate_per_second > 0) return { action };
  return { action, rate_per_second: 10, rate_unit: 'second', burst_capacity: 50 };
}
