import type { Icon } from '@tabler/icons-react';
import { Link, type LinkProps, useLocation } from '@tanstack/react-router';
import { IconSearch, IconSettings } from '~/components/icons';
import { useSession } from '~/session';
import { AccountMenu } from './AccountMenu';
import { platformScreens, tenantScreens } from './navigation';
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
            {tenantScreens.map((screen) => (
              <Screen key={screen.to} {...screen} params={{ tenant }} />
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
              {platformScreens.map((screen) => (
                <Screen key={screen.to} {...screen} params={{}} />
              ))}
            </ul>
          </>
        )}
      </nav>
      <AccountMenu />
    </div>
  );
}

interface ScreenProps extends Pick<LinkProps, 'to' | 'params'> {
  label: string;
  icon: Icon;
}

function Screen({ label, icon: Shape, ...link }: ScreenProps) {
  return (
    <li>
      <Link {...link} className={styles.link}>
        <Shape size={16} stroke={1.75} aria-hidden />
        {label}
      </Link>
    </li>
  );
}
