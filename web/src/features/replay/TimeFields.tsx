import { Input, SegmentedControl } from '@mantine/core';
import { useId } from 'react';
import { MomentField } from '~/components/MomentField';
import { useNow } from '~/components/Time';
import { exactTime, shortTime, timeSpan } from '~/domain/format';
import type { Recording } from './queries';
import styles from './Replay.module.css';
import { custom, momentsOf, type TimeDraft, timeProblem, times } from './time';

interface Props {
  draft: TimeDraft;
  recording: Recording;
  error?: string;
  onChange: (draft: TimeDraft) => void;
}

export function TimeFields({ draft, recording, error, onChange }: Props) {
  const label = useId();
  const now = useNow();
  const moments = momentsOf(draft, now);
  const isOwn = draft.choice === custom;
  const problem = error ?? timeProblem(moments, recording);
  return (
    <div>
      <Input.Label id={label}>Time</Input.Label>
      <SegmentedControl
        fullWidth
        size="xs"
        aria-labelledby={label}
        data={times}
        value={draft.choice}
        onChange={(choice) => onChange({ ...draft, choice })}
      />
      {isOwn && (
        <div className={styles.ends}>
          <MomentField label="From" value={draft.from} onChange={(from) => onChange({ ...draft, from })} />
          <MomentField label="Until" value={draft.until} onChange={(until) => onChange({ ...draft, until })} />
        </div>
      )}
      <Input.Description mt={4}>
        {!isOwn && `${timeSpan(moments.from, moments.until, 'minute')}. `}
        {recording.oldest && (
          <span title={exactTime(Date.parse(recording.oldest))}>
            Recorded since {shortTime(Date.parse(recording.oldest))}.
          </span>
        )}
      </Input.Description>
      {problem && <Input.Error mt={4}>{problem}</Input.Error>}
    </div>
  );
}
