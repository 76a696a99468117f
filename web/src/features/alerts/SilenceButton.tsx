import { Button } from '@mantine/core';
import { useMutation, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { changed } from '~/api/changes';
import { api, etagOf } from '~/api/client';
import type { Alert } from '~/api/types';
import { later } from '~/components/later';
import { useNow } from '~/components/Time';
import { failed } from '~/components/toast';
import { silenceOf } from './words';

const Silence = later(() => import('./Silence'));

interface Props {
  tenant: string;
  alert: Alert;
  inList?: boolean;
}

export function SilenceButton({ tenant, alert, inList }: Props) {
  const queries = useQueryClient();
  const [asking, setAsking] = useState(false);
  const end = useMutation({
    mutationFn: () =>
      api.delete('/api/v1/tenants/{tenant}/alerts/{alert_id}/silence', {
        tenant,
        alert_id: alert.alert_id,
        etag: etagOf(alert),
      }),
    onSuccess: () => changed(queries, tenant, 'alert'),
    onError: (error) => failed('Could not end the silence', error),
  });
  const silence = silenceOf(alert, useNow(1000));
  const verb = silence ? 'End silence' : 'Silence …';
  return (
    <>
      <Button
        variant="default"
        size={inList ? 'xs' : undefined}
        aria-label={inList ? `${verb.replace(' …', '')} ${alert.name}` : undefined}
        loading={end.isPending}
        onClick={() => (silence ? end.mutate() : setAsking(true))}
      >
        {verb}
      </Button>
      {asking && <Silence tenant={tenant} alert={alert} onClose={() => setAsking(false)} />}
    </>
  );
}
