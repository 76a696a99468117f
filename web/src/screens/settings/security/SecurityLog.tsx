import { useSearch } from '@tanstack/react-router';
import { api } from '~/api/client';
import { tenantKey } from '~/api/queries';
import { FilterField } from '~/components/FilterField';
import { Card } from '~/components/Page';
import { NoPermission } from '~/components/states';
import { TimeRange } from '~/components/TimeRange';
import { tenantSecurityKinds } from '~/domain/security';
import { Clear, defaultRange, Events, KindFilter, useSet } from '~/features/security/Events';
import styles from '~/features/security/Security.module.css';
import type { SecuritySearch } from '~/search';
import { useRole, useTenant } from '~/session';

export default function SecurityLog() {
  const { own } = useRole();
  return own ? <Log /> : <NoPermission need="own" />;
}

function Log() {
  const tenant = useTenant();
  const { kind, ip } = useSearch({ strict: false }) as SecuritySearch;
  const filter = { kind, ip };
  const set = useSet();
  return (
    <Card flush title="Security log" actions={<TimeRange fallback={defaultRange} />}>
      <div className={styles.filters}>
        <KindFilter kinds={tenantSecurityKinds} />
        <FilterField label="IP address" value={ip} onChange={(next) => set({ ip: next })} />
        <Clear filter={filter} />
      </div>
      <Events
        name={tenantKey(tenant, 'security log')}
        filter={filter}
        none="Nothing was exported or refused during this time."
        ofTenant
        read={(query, signal) => api.get('/api/v1/tenants/{tenant}/security-log', { tenant, ...query, signal })}
      />
    </Card>
  );
}
