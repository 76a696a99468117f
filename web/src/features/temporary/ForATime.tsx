import { SegmentedControl } from '@mantine/core';
import { useState } from 'react';
import { DurationField } from '~/components/DurationField';
import { FormDialog } from '~/components/FormDialog';
import { LimitPair } from '~/components/LimitPair';
import { useNow } from '~/components/Time';
import { lengthOf } from '~/domain/lengths';
import { isValid, type Limit } from '~/domain/rate';
import styles from './temporary.module.css';

export interface Draft<Action extends string> {
  action: Action;
  length: string;
  limit: Limit;
}

interface Props<Action extends string> {
  of: string;
  actions: [Action, ...Action[]];
  verbs: Record<Action, string>;
  begin: Pick<Draft<Action>, 'action' | 'limit'>;
  pointers: { end: string; limit: string };
  disabled?: (draft: Draft<Action>) => boolean;
  onClose: () => void;
  save: (draft: Draft<Action>) => Promise<unknown>;
  /** The effect. */
  children: (draft: Draft<Action>, isValid: boolean) => React.ReactNode;
}

export function ForATime<Action extends string>(props: Props<Action>) {
  const { of, actions, verbs, begin, pointers, disabled, onClose, save, children } = props;
  const [chosen, setChosen] = useState<Draft<Action>>({ ...begin, length: '1h' });
  const change = (part: Partial<Draft<Action>>) => setChosen((before) => ({ ...before, ...part }));
  const now = useNow();
  const draft = actions.includes(chosen.action) ? chosen : { ...chosen, action: actions[0] };
  const { action, length, limit } = draft;
  const hasLimit = action === 'limit';
  const { label, ms } = lengthOf(length);
  const valid = !hasLimit || isValid(limit);
  return (
    <FormDialog
      title={verbs[action] + of}
      verb={`${verbs[action]} for ${label}`}
      destructive={action === 'block'}
      disabled={!valid || disabled?.(draft)}
      onClose={onClose}
      save={() => save(draft)}
    >
      {(wrong) => (
        <>
          {actions.length > 1 && (
            <SegmentedControl
              fullWidth
              aria-label="Action"
              data={actions.map((value) => ({ value, label: verbs[value] }))}
              value={action}
              onChange={(value) => change({ action: value as Action })}
            />
          )}
          <DurationField
            value={length}
            onChange={(length) => change({ length })}
            end={now + ms}
            error={wrong(pointers.end)}
          />
          {hasLimit && (
            <LimitPair
              limit={limit}
              wrong={wrong}
              at={pointers.limit}
              onChange={(part) => change({ limit: { ...limit, ...part } })}
            />
          )}
          <div className={styles.effect}>{children(draft, valid)}</div>
        </>
      )}
    </FormDialog>
  );
}
