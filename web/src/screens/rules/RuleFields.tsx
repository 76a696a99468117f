import { NativeSelect, SegmentedControl, Switch, Textarea } from '@mantine/core';
import { useState } from 'react';
import { MomentField } from '~/components/MomentField';
import { fitted, isPlain, newLimit } from '~/domain/algorithm';
import { canBeChargedAfter, chargeLabels } from '~/domain/meter';
import { hasRate } from '~/domain/rate';
import { actionLabels, choicesOf, failureModeLabels, fieldLabels, leaseLabels, modeLabels } from '~/domain/rule';
import { AdaptFields } from './AdaptFields';
import { type FieldProps, inputsOf, type Kept, LimitFields } from './LimitFields';
import styles from './Rules.module.css';
import type { RuleDraft } from './ruleDraft';

interface Props extends FieldProps {
  stops?: boolean;
}

function effectOf({ action, mode }: RuleDraft): string {
  if (mode === 'shadow') return 'The rule reports what it would deny, and denies nothing.';
  return action === 'block' ? 'Every matching request is denied.' : 'Requests above the limit are denied.';
}

export function RuleFields({ stops, ...props }: Props) {
  const { draft, onChange, problem, disabled } = props;
  const input = inputsOf(props);
  const [kept, setKept] = useState<Kept>({});
  const [isAdvanced] = useState(
    () =>
      !!draft.adapt || !!draft.failure_mode || !!draft.expires_at || draft.lease !== 'auto' || draft.charge === 'after',
  );
  return (
    <div className={styles.form}>
      <NativeSelect
        label="Action"
        {...input('action')}
        data={choicesOf(actionLabels)}
        onChange={(event) => onChange(withAction(draft, event.currentTarget.value as RuleDraft['action']))}
      />
      {draft.action === 'limit' && <LimitFields {...props} kept={kept} onKeep={setKept} />}
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
          <p className="field-note">{effectOf(draft)}</p>
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
          {draft.action === 'limit' && (
            <>
              {hasRate(draft.algorithm) && <AdaptFields {...props} />}
              <NativeSelect
                label={fieldLabels.failure_mode}
                {...input('failure_mode')}
                data={[{ value: '', label: 'Tenant default' }, ...choicesOf(failureModeLabels)]}
              />
              {canBeChargedAfter(draft.algorithm) && (
                <NativeSelect
                  label={fieldLabels.charge}
                  description="After: requests pass while anything is left."
                  {...input('charge')}
                  data={choicesOf(chargeLabels)}
                />
              )}
              {isPlain(draft) && (
                <NativeSelect label={fieldLabels.lease} {...input('lease')} data={choicesOf(leaseLabels)} />
              )}
            </>
          )}
          <Textarea label="Description" autosize minRows={2} {...input('description')} />
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

/** The server refuses an empty end, which stands for a text that is no time. */
function endOf(at: number | null): string | null {
  if (at === null) return null;
  return Number.isNaN(at) ? '' : new Date(at).toISOString();
}

function withAction(draft: RuleDraft, action: RuleDraft['action']): Partial<RuleDraft> {
  if (action !== 'limit' || draft.burst_capacity > 0) return { action };
  return { action, ...fitted({ ...newLimit, algorithm: draft.algorithm }) };
}
