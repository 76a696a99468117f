import { NativeSelect, TextInput } from '@mantine/core';
import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { changed } from '~/api/changes';
import { api, etagOf } from '~/api/client';
import { serverNow } from '~/api/clock';
import type { Alert } from '~/api/types';
import { FormDialog } from '~/components/FormDialog';
import { useNow } from '~/components/Time';
import { done } from '~/components/toast';
import { plural, shortTime } from '~/domain/format';

const hours = [1, 4, 8, 24, 72, 168];

export default function Silence({ tenant, alert, onClose }: { tenant: string; alert: Alert; onClose: () => void }) {
  const queries = useQueryClient();
  const [length, setLength] = useState('1');
  const [reason, setReason] = useState('');
  const now = useNow();
  const end = (from: number) => from + Number(length) * 3_600_000;

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
      lead="Nothing is sent meanwhile, and what waits now is not sent later. Firing is recorded."
      verb="Silence"
      onClose={onClose}
      save={save}
    >
      {(wrong) => (
        <>
          <NativeSelect
            label="Duration"
            description={`Ends ${shortTime(end(now))}`}
            inputWrapperOrder={['label', 'input', 'description', 'error']}
            data={hours.map((one) => ({
              value: String(one),
              label: one < 48 ? plural(one, 'hour') : plural(one / 24, 'day'),
            }))}
            value={length}
            onChange={({ currentTarget: { value } }) => setLength(value)}
            error={wrong('/until')}
          />
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
