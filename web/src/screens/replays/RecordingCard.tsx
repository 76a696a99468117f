import { Button, Group, NumberInput, Progress } from '@mantine/core';
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { changed } from '~/api/changes';
import { api, tagged } from '~/api/client';
import { sentence } from '~/api/problem';
import { tenantKey, tenantQuery } from '~/api/queries';
import { Facts } from '~/components/Facts';
import { submits } from '~/components/FormDialog';
import { IconHistory } from '~/components/icons';
import { Card } from '~/components/Page';
import { EmptyState } from '~/components/states';
import { done } from '~/components/toast';
import { exactNumber, exactTime, percent, plural } from '~/domain/format';
import type { Recording } from '~/features/replay/queries';
import { useRole } from '~/session';
import styles from './Replays.module.css';
import { size } from './words';

interface Props {
  tenant: string;
  recording: Recording;
}

function useDays(tenant: string) {
  const queries = useQueryClient();
  const { data: saved } = useQuery(tenantQuery(tenant));
  const save = useMutation({
    mutationFn: (days: number) =>
      tagged(
        api.patch('/api/v1/tenants/{tenant}', {
          tenant,
          etag: saved?.etag ?? '',
          body: { settings: { record_days: days } },
        }),
      ),
    onSuccess: async (_, days) => {
      await changed(queries, tenant, 'tenant');
      await queries.invalidateQueries({ queryKey: tenantKey(tenant, 'recording') });
      done(days > 0 ? `Checks are recorded for ${plural(days, 'day')}` : 'Recording is off');
    },
  });
  return { save, ready: saved !== undefined };
}

const costs = (budget: number) => `Takes at most ${size(budget)}; above that, a sample of users is kept.`;

export function StartRecording({ tenant, recording }: Props) {
  const { own } = useRole();
  const { save, ready } = useDays(tenant);
  return (
    <Card>
      <EmptyState
        icon={IconHistory}
        title="Record checks first"
        action={
          own && (
            <Button disabled={!ready} loading={save.isPending} onClick={() => save.mutate(7)}>
              Record checks for 7 days
            </Button>
          )
        }
      >
        {costs(recording.budget_bytes)} {!own && 'An owner can turn it on.'}
      </EmptyState>
      {save.isError && <p role="alert">{sentence(save.error)}</p>}
    </Card>
  );
}

export function RecordingCard({ tenant, recording }: Props) {
  const { own } = useRole();
  const { save, ready } = useDays(tenant);
  const [days, setDays] = useState<number | string>(recording.record_days);
  const share = recording.bytes / recording.budget_bytes;
  const { oldest, dropped, left_out } = recording;
  return (
    <Card title="Recorded checks" lead={costs(recording.budget_bytes)}>
      <Progress value={Math.min(100, 100 * share)} aria-label="Part of the budget that is used" mb="sm" />
      <Facts
        facts={{
          Used: `${size(recording.bytes)} of ${size(recording.budget_bytes)} (${percent(share)})`,
          Checks: exactNumber(recording.checks),
          Since: oldest ? exactTime(Date.parse(oldest)) : 'nothing yet',
          'Sample now': recording.is_stopped
            ? 'stopped, because the budget is used up'
            : recording.share < 1 && `${percent(recording.share)} of users and addresses`,
          'Never recorded': left_out > 0 && `${plural(left_out, 'check')} with a reservation`,
          'Without room': dropped > 0 && plural(dropped, 'check'),
        }}
      />
      {own && (
        <form className={styles.days} onSubmit={submits(() => save.mutate(Number(days)))}>
          <Group gap={8} align="end">
            <NumberInput
              label="Days kept"
              description="0 turns recording off, and deletes what is recorded"
              value={days}
              min={0}
              max={30}
              allowDecimal={false}
              allowNegative={false}
              onChange={setDays}
            />
            <Button
              type="submit"
              variant="default"
              disabled={!ready || days === '' || Number(days) === recording.record_days}
              loading={save.isPending}
            >
              Save
            </Button>
          </Group>
          {save.isError && <p role="alert">{sentence(save.error)}</p>}
        </form>
      )}
    </Card>
  );
}
