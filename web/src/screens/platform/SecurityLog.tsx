import { Button } from '@mantine/core';
import { useMutation } from '@tanstack/react-query';
import { useSearch } from '@tanstack/react-router';
import { api } from '~/api/client';
import { serverNow } from '~/api/clock';
import { save, securityExport } from '~/api/exports';
import { FilterField } from '~/components/FilterField';
import { IconDownload } from '~/components/icons';
import { Card, Page } from '~/components/Page';
import { TimeRange, useTimeRange } from '~/components/TimeRange';
import { failed } from '~/components/toast';
import { isoMoments } from '~/domain/range';
import { securityKinds } from '~/domain/security';
import { Clear, defaultRange, Events, KindFilter, useSet } from '~/features/security/Events';
import styles from '~/features/security/Security.module.css';
import type { SecuritySearch } from '~/search';

export default function SecurityLog() {
  const { kind, email, ip, tenant } = useSearch({ strict: false }) as SecuritySearch;
  const filter = { kind, email, ip, tenant };
  const range = useTimeRange(defaultRange);
  const set = useSet();
  const exported = useMutation({
    mutationFn: () => securityExport({ ...filter, ...isoMoments(range, serverNow()) }),
    onSuccess: (file) => save(file, 'security-log.csv'),
    onError: (error) => failed('Not exported', error),
  });
  return (
    <Page
      title="Security log"
      actions={
        <>
          <TimeRange fallback={defaultRange} />
          <Button
            variant="default"
            loading={exported.isPending}
            leftSection={<IconDownload size={15} aria-hidden />}
            onClick={() => exported.mutate()}
          >
            Export CSV
          </Button>
        </>
      }
    >
      <Card flush>
        <div className={styles.filters}>
          <KindFilter kinds={securityKinds} />
          <FilterField label="E-mail" value={email} onChange={(next) => set({ email: next })} search />
          <FilterField label="IP address" value={ip} onChange={(next) => set({ ip: next })} />
          <FilterField label="Tenant" value={tenant} onChange={(next) => set({ tenant: next })} />
          <Clear filter={filter} />
        </div>
        <Events
          name={['security log']}
          filter={filter}
          none="Nobody signed in during this time."
          read={(query, signal) => api.get('/api/v1/security-log', { ...query, signal })}
        />
      </Card>
    </Page>
  );
}
