import { Button, Checkbox, Group, TextInput } from '@mantine/core';
import { useMutation, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { changed } from '~/api/changes';
import { api, body } from '~/api/client';
import { ProblemError, sentence } from '~/api/problem';
import type { Rule, RulePatch } from '~/api/types';
import { Dialog } from '~/components/Dialog';
import { Effect } from '~/components/Effect';
import { done } from '~/components/toast';
import { ownZone } from '~/domain/format';
import { fieldMoment, fieldText } from '~/domain/zone';
import { whenWords } from '~/features/scheduled/scheduled';
import styles from './Rules.module.css';
import { copyOf, creation, differences, patch, type RuleDraft } from './ruleDraft';

interface Props {
  tenant: string;
  rule: Rule;
  draft: RuleDraft;
  onClose: () => void;
  onScheduled: () => void;
}

const hour = 3_600_000;

/** Schedules a draft: when it begins, and when the rule goes back. */
export function ScheduleDialog({ tenant, rule, draft, onClose, onScheduled }: Props) {
  const queries = useQueryClient();
  const [start, setStart] = useState(() => fieldText(Math.ceil(Date.now() / hour) * hour));
  const [back, setBack] = useState(true);
  const [end, setEnd] = useState(() => fieldText(Math.ceil(Date.now() / hour) * hour + 24 * hour));
  const [from, until] = [fieldMoment(start), fieldMoment(end)];
  const times = {
    starts_at: Number.isNaN(from) ? '' : new Date(from).toISOString(),
    ends_at: back && !Number.isNaN(until) ? new Date(until).toISOString() : null,
  };
  const schedule = useMutation({
    mutationFn: () =>
      body(
        api.POST('/api/v1/tenants/{tenant}/scheduled-changes', {
          params: { path: { tenant } },
          body: {
            rule_id: rule.rule_id,
            version: rule.version,
            change: patch(rule, draft) as RulePatch,
            ...times,
          },
        }),
      ),
    onSuccess: async () => {
      await changed(queries, tenant, 'scheduled_change');
      done(`Change scheduled: ${whenWords(times)}`);
      onScheduled();
    },
  });
  const error = schedule.error;
  const field = (pointer: string) => (error instanceof ProblemError ? error.field(pointer) : undefined);
  const isPlaced = field('/starts_at') ?? field('/ends_at');
  const zone = ownZone(Date.now());
  return (
    <Dialog onClose={onClose} title="Schedule this change" size={560} pending={schedule.isPending}>
      <form
        className={styles.form}
        onSubmit={(event) => {
          event.preventDefault();
          schedule.mutate();
        }}
      >
        <div className={styles.changes}>
          {differences(rule, draft).map(({ label, from: was, to }) => (
            <span key={label}>
              {label}: <s>{was}</s> <strong>{to}</strong>
            </span>
          ))}
        </div>
        <Effect
          tenant={tenant}
          question={{ rules: [creation({ ...copyOf({ ...rule, ...draft }, []), name: rule.name })] }}
        />
        <TextInput
          type="datetime-local"
          label={`Starts (${zone})`}
          value={start}
          error={field('/starts_at')}
          onChange={(event) => setStart(event.currentTarget.value)}
        />
        <Checkbox
          label="Take it back"
          checked={back}
          onChange={(event) => setBack(event.currentTarget.checked)}
        />
        {back && (
          <TextInput
            type="datetime-local"
            label={`Ends (${zone})`}
            value={end}
            error={field('/ends_at')}
            onChange={(event) => setEnd(event.currentTarget.value)}
          />
        )}
        <p className="soft">
          {back
            ? 'At the end the rule gets back what it had before. If somebody edits these fields meanwhile, the edit stays and nothing is taken back.'
            : 'The change stays.'}{' '}
          Other fields keep what they have then.
        </p>
        {error && !isPlaced && (
          <p role="alert" className={styles.error}>
            {sentence(error)}
          </p>
        )}
        <Group justify="flex-end">
          <Button variant="default" onClick={onClose} disabled={schedule.isPending}>
            Cancel
          </Button>
          <Button
            type="submit"
            loading={schedule.isPending}
            disabled={Number.isNaN(from) || (back && !(until > from))}
          >
            Schedule
          </Button>
        </Group>
      </form>
    </Dialog>
  );
}
