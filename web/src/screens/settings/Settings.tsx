import { Link, useParams } from '@tanstack/react-router';
import { lazy, Suspense } from 'react';
import { Page } from '~/components/Page';
import { ErrorState, LoadingLines } from '~/components/states';
import { useTenant } from '~/session';
import { settingsSections } from '~/shell/navigation';
import styles from './Settings.module.css';

const sections = {
  keys: lazy(() => import('./keys/Keys')),
  members: lazy(() => import('./members/Members')),
  alerts: lazy(() => import('./alerts/Alerts')),
  gateways: lazy(() => import('./gateways/Gateways')),
  tenant: lazy(() => import('./tenant/TenantSettings')),
  'import-export': lazy(() => import('./config/ImportExport')),
  audit: lazy(() => import('./audit/Audit')),
  security: lazy(() => import('./security/SecurityLog')),
};

export default function Settings() {
  const tenant = useTenant();
  const { section = '' } = useParams({ strict: false });
  const Section = sections[section as keyof typeof sections];
  return (
    <Page title="Settings">
      <div className={styles.columns}>
        <nav aria-label="Settings" className={styles.nav}>
          {settingsSections.map(({ section, label }) => (
            <Link
              key={section}
              to="/t/$tenant/settings/$section"
              params={{ tenant, section }}
              activeOptions={{ includeSearch: false }}
              className={styles.link}
            >
              {label}
            </Link>
          ))}
        </nav>
        <div className={`${styles.section} in-order`}>
          <Suspense fallback={<LoadingLines />}>
            {Section ? <Section /> : <ErrorState error={new Error('This page does not exist.')} />}
          </Suspense>
        </div>
      </div>
    </Page>
  );
}
