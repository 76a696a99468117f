import { SegmentedControl } from '@mantine/core';
import { BurstInput } from '~/components/BurstInput';
import { DurationField } from '~/components/DurationField';
import { FormDialog } from '~/components/FormDialog';
import { RateInput } from '~/components/RateInput';
import { lengthOf } from '~/domain/lengths';
import { isValid, type Limit, limitProblems } from '~/domain/rate';
import styles from './temporary.module.css';

interface Props<Action extends string> {
  of: string;
  actions: Action[];
  verbs: Record<Action, string>;
  action: Action;
  onAction: (action: Action) => void;
  length: string;
  onLength: (length: string) => void;
  /** Null if the action has none. */
  limit: Limit | null;
  onLimit: (limit: Limit) => void;
  withRate: boolean;
  now: number;
  /** JSON pointers of the duration and the limit. */
  pointers: { end: string; limit: string };
  disabled?: boolean;
  onClose: () => void;
  save: () => Promise<unknown>;
  /** The effect. */
  children: React.ReactNode;
}

export function ForATime<Action extends string>(props: Props<Action>) {
  const { of, actions, verbs, action, onAction, length, onLength, limit, onLimit, withRate } = props;
  const { now, pointers, disabled, onClose, save, children } = props;
  const problems = limit ? limitProblems(limit) : {};
  const { label, ms } = lengthOf(length);
  return (
    <FormDialog
      title={verbs[action] + of}
      verb={`${verbs[action]} for ${label}`}
      destructive={action === 'block'}
      disabled={disabled || (limit !== null && !isValid(limit))}
      onClose={onClose}
      save={save}
    >
      {(wrong) => (
        <>
          {actions.length > 1 && (
            <SegmentedControl
              fullWidth
              aria-label="Action"
              data={actions.map((value) => ({ value, label: verbs[value] }))}
              value={action}
              onChange={(value) => onAction(value as Action)}
            />
          )}
          <DurationField value={length} onChange={onLength} end={now + ms} error={wrong(pointers.end)} />
          {limit && (
            <div className={styles.limit}>
              {withRate && (
                <RateInput
                  label="Rate"
                  value={limit}
                  error={problems.rate ?? wrong(`${pointers.limit}/rate_per_second`)}
                  onChange={(rate) => onLimit({ ...limit, ...rate })}
                />
              )}
              <BurstInput
                label="Burst"
                value={limit.burst_capacity}
                error={problems.burst ?? wrong(`${pointers.limit}/burst_capacity`)}
                onChange={(burst_capacity) => onLimit({ ...limit, burst_capacity })}
              />
            </div>
          )}
          <div className={styles.effect}>{children}</div>
        </>
      )}
    </FormDialog>
  );
}
