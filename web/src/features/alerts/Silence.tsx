import { TextInput } from '@mantine/core';
import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { changed } from '~/api/changes';
import { api, etagOf } from '~/api/client';
import { serverNow } from '~/api/clock';
import type { Alert } from '~/api/types';
import { DurationField } from '~/components/DurationField';
import { FormDialog } from '~/components/FormDialog';
import { useNow } from '~/components/Time';
import { done } from '~/components/toast';
import { shortTime } from '~/domain/format';
import { lengthOf } from '~/domain/lengths';

export default function Silence({ tenant, alert, onClose }: { tenant: string; alert: Alert; onClose: () => void }) {
  const queries = useQueryClient();
  const [length, setLength] = useState('1h');
  const [reason, setReason] = useState('');
  const now = useNow();
  const end = (from: number) => from + lengthOf(length).ms;

  async function save() {
    const until = new Date(end(serverNow())).toISOString();
    const params = { tenant, alert_id: alert.alert_id, etag: etagOf(alert) };
    await api.put('/api/v1/tenants/{tenant}/alerts/{alert_id}/silence', { ...params, body: { until, reason } });
    await changed(queries, tenant, 'alert');
    done(`Alert ${alert.name} silenced until ${shortTime(Date.parse(until))}`);
  }

  return (
    <FormDialog
      title={`Silence ${alert.name}`}
      lead="Firing is recorded, and never sent."
      verb="Silence"
      onClose={onClose}
      save={save}
    >
      {(wrong) => (
        <>
          <DurationField value={length} onChange={setLength} end={end(now)} error={wrong('/until')} />
          <TextInput
            label="Reason"
            placeholder="Load test of search"
            maxLength={500}
            value={reason}
            onChange={({ currentTarget: { value } }) => setReason(value)}
            error={wrong('/reason')}
          />
        </>
      )}
    </FormDialog>
  );
}
