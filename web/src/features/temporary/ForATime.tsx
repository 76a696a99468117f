import { NativeSelect, SegmentedControl } from '@mantine/core';
import { BurstInput } from '~/components/BurstInput';
import { RateInput } from '~/components/RateInput';
import { shortTime } from '~/domain/format';
import { type Limit, limitProblems } from '~/domain/rate';
import { lengths } from './draft';
import styles from './temporary.module.css';

interface Props<Action extends string> {
  actions: Action[];
  verbs: Record<Action, string>;
  action: Action;
  onAction: (action: Action) => void;
  minutes: string;
  onMinutes: (minutes: string) => void;
  /** The limit that is asked for; null if the action has none. */
  limit: Limit | null;
  onLimit: (limit: Limit) => void;
  withRate: boolean;
  now: number;
  /** The server's errors, by the name of a field; `end` is that of the duration. */
  wrong: (field: 'end' | 'rate_per_second' | 'burst_capacity') => string | undefined;
}

/** What is done for a time, for how long, and with which limit. */
export function ForATime<Action extends string>(props: Props<Action>) {
  const { actions, verbs, action, onAction, minutes, onMinutes, limit, onLimit, withRate, now, wrong } = props;
  const problems = limit ? limitProblems(limit) : {};
  return (
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
      <NativeSelect
        label="Duration"
        description={`Ends ${shortTime(now + Number(minutes) * 60_000)}, by itself.`}
        value={minutes}
        data={lengths}
        error={wrong('end')}
        onChange={(event) => onMinutes(event.currentTarget.value)}
      />
      {limit && (
        <div className={styles.limit}>
          {withRate && (
            <RateInput
              label="Rate"
              value={limit}
              error={problems.rate ?? wrong('rate_per_second')}
              onChange={(rate) => onLimit({ ...limit, ...rate })}
            />
          )}
          <BurstInput
            label="Burst"
            value={limit.burst_capacity}
            error={problems.burst ?? wrong('burst_capacity')}
            onChange={(burst_capacity) => onLimit({ ...limit, burst_capacity })}
          />
        </div>
      )}
    </>
  );
}
