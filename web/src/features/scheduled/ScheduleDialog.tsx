import { Checkbox, SegmentedControl } from '@mantine/core';
import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { changed } from '~/api/changes';
import { api } from '~/api/client';
import { serverNow } from '~/api/clock';
import { isStatus } from '~/api/problem';
import type { NewScheduledRule, ScheduledChange } from '~/api/types';
import { FormDialog } from '~/components/FormDialog';
import { MomentField } from '~/components/MomentField';
import { done } from '~/components/toast';
import { moment, plural } from '~/domain/format';
import { refusal, whenWords } from '~/domain/scheduled';

interface Props {
  tenant: string;
  rules: NewScheduledRule[];
  children: React.ReactNode;
  replaces?: ScheduledChange;
  disabled?: boolean;
  onClose: () => void;
  onScheduled: () => void;
  onRaceLost?: () => unknown;
}

const hour = 3_600_000;

export function ScheduleDialog(props: Props) {
  const { tenant, rules, children, replaces, disabled, onClose, onScheduled, onRaceLost } = props;
  const queries = useQueryClient();
  const [begins, setBegins] = useState<'later' | 'now'>('later');
  const [next] = useState(() => ({
    start: replaces ? Date.parse(replaces.starts_at) : Math.ceil(serverNow() / hour) * hour,
    end: replaces?.ends_at ? Date.parse(replaces.ends_at) : null,
  }));
  const [start, setStart] = useState<number | null>(next.start);
  const [back, setBack] = useState(next.end !== null);
  const [end, setEnd] = useState<number | null>(next.end ?? next.start + 24 * hour);
  const isNow = begins === 'now';
  const isBack = back || isNow;
  const from = isNow ? serverNow() : (start ?? Number.NaN);
  const until = end ?? Number.NaN;
  const many = rules.length > 1;

  async function schedule() {
    try {
      const change = await api.post('/api/v1/tenants/{tenant}/scheduled-changes', {
        tenant,
        body: {
          rules,
          starts_at: isNow ? null : new Date(from).toISOString(),
          ends_at: isBack ? new Date(until).toISOString() : null,
          replaces: replaces?.change_id,
        },
      });
      await changed(queries, tenant, 'scheduled_change', 'rule');
      done(
        change.state === 'in_force'
          ? `Changed until ${moment(until)}. It takes effect within 2 s`
          : `Change scheduled: ${whenWords(change)}`,
      );
    } catch (error) {
      if (isStatus(error, 412)) await onRaceLost?.();
      throw refusal(error);
    }
  }

  return (
    <FormDialog
      onClose={onClose}
      title={
        replaces
          ? 'Edit this scheduled change'
          : many
            ? `Schedule ${plural(rules.length, 'change')}`
            : 'Schedule this change'
      }
      size={560}
      verb={isNow ? 'Change now' : replaces ? 'Save' : 'Schedule'}
      disabled={disabled || Number.isNaN(from) || (isBack && !(until > from))}
      save={schedule}
      onSaved={onScheduled}
    >
      {(wrong) => (
        <>
          {children}
          <SegmentedControl
            fullWidth
            aria-label="Start"
            data={[
              { value: 'later', label: 'At a time' },
              { value: 'now', label: 'Now, for a time' },
            ]}
            value={begins}
            onChange={(value) => setBegins(value as 'later' | 'now')}
          />
          {!isNow && (
            <>
              <MomentField label="Starts" value={start} error={wrong('/starts_at')} onChange={setStart} />
              <Checkbox
                label={many ? 'Take them back' : 'Take it back'}
                checked={back}
                onChange={(event) => setBack(event.currentTarget.checked)}
              />
            </>
          )}
          {isBack && <MomentField label="Ends" value={end} error={wrong('/ends_at')} onChange={setEnd} />}
          {isBack && (
            <p className="soft">
              {many
                ? 'At the end each rule gets back what it had, unless somebody edited or removed that rule meanwhile.'
                : 'At the end the rule gets back what it had, unless somebody edited it meanwhile.'}
            </p>
          )}
        </>
      )}
    </FormDialog>
  );
}
