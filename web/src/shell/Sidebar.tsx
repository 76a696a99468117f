import { Link, useLocation } from '@tanstack/react-router';
import {
  IconClock,
  IconKey,
  IconMail,
  IconSearch,
  IconShield,
  IconSignIn,
  IconTenants,
  IconUsers,
} from '~/components/icons';
import { useSession } from '~/session';
import { AccountMenu } from './AccountMenu';
import { settingsIcon as IconSettings, tenantScreens } from './navigation';
import styles from './Sidebar.module.css';
import { TenantSwitcher } from './TenantSwitcher';
import { useShownTenant } from './useShownTenant';

const mac = typeof navigator !== 'undefined' && /mac/i.test(navigator.userAgent);

export function Sidebar({ onFind }: { onFind: () => void }) {
  const session = useSession();
  const tenant = useShownTenant();
  const inSettings = useLocation({ select: ({ pathname }) => pathname.includes('/settings/') });
  return (
    <div className={styles.sidebar}>
      <TenantSwitcher />
      <button type="button" className={styles.find} onClick={onFind}>
        <IconSearch size={14} aria-hidden />
        <span>Search</span>
        <kbd>{mac ? '⌘K' : 'Ctrl K'}</kbd>
      </button>
      <nav aria-label="Screens" className={styles.screens}>
        {tenant && (
          <ul>
            {tenantScreens.map(({ to, label, icon: Icon }) => (
              <li key={to}>
                <Link to={to} params={{ tenant }} className={styles.link}>
                  <Icon size={16} stroke={1.75} aria-hidden />
                  {label}
                </Link>
              </li>
            ))}
            <li className={styles.apart}>
              <Link
                to="/t/$tenant/settings/$section"
                params={{ tenant, section: 'keys' }}
                className={styles.link}
                {...(inSettings && { 'aria-current': 'page' })}
              >
                <IconSettings size={16} stroke={1.75} aria-hidden />
                Settings
              </Link>
            </li>
          </ul>
        )}
        {session.account.platform_admin && (
          <>
            <h2 className={styles.group}>Platform</h2>
            <ul>
              <li>
                <Link to="/platform/tenants" className={styles.link}>
                  <IconTenants size={16} stroke={1.75} aria-hidden />
                  Tenants
                </Link>
              </li>
              <li>
                <Link to="/platform/accounts" className={styles.link}>
                  <IconUsers size={16} stroke={1.75} aria-hidden />
                  Accounts
                </Link>
              </li>
              <li>
                <Link to="/platform/service-keys" className={styles.link}>
                  <IconKey size={16} stroke={1.75} aria-hidden />
                  Service keys
                </Link>
              </li>
              <li>
                <Link to="/platform/mail" className={styles.link}>
                  <IconMail size={16} stroke={1.75} aria-hidden />
                  Mail
                </Link>
              </li>
              <li>
                <Link to="/platform/jobs" className={styles.link}>
                  <IconClock size={16} stroke={1.75} aria-hidden />
                  Jobs
                </Link>
              </li>
              <li>
                <Link to="/platform/security-log" className={styles.link}>
                  <IconShield size={16} stroke={1.75} aria-hidden />
                  Security log
                </Link>
              </li>
              <li>
                <Link to="/platform/sign-in" className={styles.link}>
                  <IconSignIn size={16} stroke={1.75} aria-hidden />
                  Sign-in
                </Link>
              </li>
            </ul>
          </>
        )}
      </nav>
      <AccountMenu />
    </div>
  );
}
