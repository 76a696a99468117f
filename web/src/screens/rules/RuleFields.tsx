import { NativeSelect, SegmentedControl, Switch, Textarea } from '@mantine/core';
import { useState } from 'react';
import { MomentField } from '~/components/MomentField';
import { fitted, isPlain, newLimit } from '~/domain/algorithm';
import { canBeChargedAfter, chargeLabels } from '~/domain/meter';
import { hasRate } from '~/domain/rate';
import { actionLabels, choicesOf, failureModeLabels, fieldLabels, leaseLabels, modeLabels } from '~/domain/rule';
import { AdaptFields } from './AdaptFields';
import { type FieldProps, type Kept, LimitFields } from './LimitFields';
import styles from './Rules.module.css';
import type { RuleDraft } from './ruleDraft';

interface Props extends FieldProps {
  /** The saved rule denies; saving the draft ends that. */
  stops?: boolean;
}

const effects = {
  enforce: 'Requests above the limit are denied.',
  shadow: 'The rule reports what it would deny, and denies nothing.',
};

const blocks = 'Every matching request is denied.';

export function RuleFields({ draft, onChange, problem, disabled, stops }: Props) {
  const [kept, setKept] = useState<Kept>({});
  const [isAdvanced] = useState(
    () =>
      !!draft.adapt || !!draft.failure_mode || !!draft.expires_at || draft.lease !== 'auto' || draft.charge === 'after',
  );
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
        <LimitFields
          draft={draft}
          kept={kept}
          onKeep={setKept}
          onChange={onChange}
          problem={problem}
          disabled={disabled}
        />
      )}
      {draft.action !== 'bypass' && (
        <div className={styles.mode}>
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
      <Switch
        label="On"
        checked={draft.is_active}
        disabled={disabled}
        onChange={(event) => onChange({ is_active: event.currentTarget.checked })}
      />
      <details className={styles.advanced} open={isAdvanced}>
        <summary>Advanced</summary>
        <div className={styles.form}>
          {draft.action === 'limit' && hasRate(draft.algorithm) && (
            <AdaptFields draft={draft} onChange={onChange} problem={problem} disabled={disabled} />
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
          {draft.action === 'limit' && canBeChargedAfter(draft.algorithm) && (
            <NativeSelect
              label={fieldLabels.charge}
              description="After: requests pass while anything is left."
              value={draft.charge}
              disabled={disabled}
              error={problem('/charge')}
              data={choicesOf(chargeLabels)}
              onChange={(event) => onChange({ charge: event.currentTarget.value as RuleDraft['charge'] })}
            />
          )}
          {draft.action === 'limit' && isPlain(draft) && (
            <NativeSelect
              label={fieldLabels.lease}
              value={draft.lease}
              disabled={disabled}
              error={problem('/lease')}
              data={choicesOf(leaseLabels)}
              onChange={(event) => onChange({ lease: event.currentTarget.value as RuleDraft['lease'] })}
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
          <MomentField
            label="Ends"
            description="The rule matches nothing from then on. Empty: it does not end."
            value={draft.expires_at === null ? null : Date.parse(draft.expires_at)}
            disabled={disabled}
            error={problem('/expires_at')}
            onChange={(at) => onChange({ expires_at: endOf(at) })}
          />
        </div>
      </details>
    </div>
  );
}

/** The end of a rule as the API has it; empty, which the server refuses, while what is typed is no time. */
function endOf(at: number | null): string | null {
  if (at === null) return null;
  return Number.isNaN(at) ? '' : new Date(at).toISOString();
}

function withAction(draft: RuleDraft, action: RuleDraft['action']): Partial<RuleDraft> {
  if (action !== 'limit' || draft.burst_capacity > 0) return { action };
  return { action, ...fitted({ ...newLimit, algorithm: draft.algorithm }) };
}
