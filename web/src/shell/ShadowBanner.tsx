import { Button } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { Link, useParams } from '@tanstack/react-router';
import { useState } from 'react';
import { enforcementChangeQuery } from '~/api/enforcement';
import { tenantQuery } from '~/api/queries';
import type { Tenant } from '~/api/types';
import { IconGhost } from '~/components/icons';
import { later } from '~/components/later';
import { RelativeTime } from '~/components/Time';
import { actorOf } from '~/domain/actor';
import { useRole } from '~/session';
import styles from './ShadowBanner.module.css';

const TurnEnforcement = later(async () => ({
  default: (await import('~/components/TurnEnforcement')).TurnEnforcement,
}));

const every = 15_000;

export function ShadowBanner() {
  const { tenant: slug } = useParams({ strict: false });
  const { data } = useQuery({ ...tenantQuery(slug ?? ''), enabled: !!slug, refetchInterval: every });
  const [asking, setAsking] = useState<'never' | 'yes' | 'no'>('never');
  if (!slug || !data) return null;
  const tenant = data.value;
  return (
    <>
      {tenant.enforcement === 'shadow' && <Banner tenant={tenant} onEnd={() => setAsking('yes')} />}
      {asking !== 'never' && (
        <TurnEnforcement tenant={tenant} opened={asking === 'yes'} onClose={() => setAsking('no')} />
      )}
    </>
  );
}

function Banner({ tenant, onEnd }: { tenant: Tenant; onEnd: () => void }) {
  const { own } = useRole();
  const { data: change } = useQuery(enforcementChangeQuery(tenant));
  return (
    <section aria-label="Enforcement" className={styles.banner}>
      <IconGhost size={16} aria-hidden />
      <p>
        <strong>{tenant.name} is in shadow: nothing is denied.</strong> Every rule only reports what it would deny.{' '}
        {change && (
          <>
            Since <RelativeTime at={change.at} />, by {actorOf(change)}.{' '}
          </>
        )}
        <Link
          to="/t/$tenant/settings/$section"
          params={{ tenant: tenant.slug, section: 'audit' }}
          search={{ kind: 'tenant' }}
        >
          Audit log
        </Link>
      </p>
      {own && (
        <Button size="xs" color="red.8" onClick={onEnd}>
          Enforce again …
        </Button>
      )}
    </section>
  );
}
