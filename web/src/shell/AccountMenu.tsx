import { Menu, SegmentedControl, useMantineColorScheme } from '@mantine/core';
import { useNavigate } from '@tanstack/react-router';
import { IconLogout, IconSelector, IconUser } from '~/components/icons';
import { mayLeave } from '~/components/Leaving';
import { Act } from '~/components/MoreMenu';
import { failed } from '~/components/toast';
import { ZoneChoice } from '~/components/ZoneChoice';
import { useSession, useSignOut } from '~/session';
import styles from './AccountMenu.module.css';

export function AccountMenu() {
  const { account } = useSession();
  const { colorScheme, setColorScheme } = useMantineColorScheme();
  const navigate = useNavigate();
  const signOut = useSignOut();
  return (
    <Menu position="top-start" width={220}>
      <Menu.Target>
        <button type="button" className={styles.account}>
          <span className="aside">Account: </span>
          <span className={styles.who}>
            <span className={styles.name}>{account.name || account.email}</span>
            {account.name && <span className={styles.email}>{account.email}</span>}
          </span>
          <IconSelector size={14} aria-hidden />
        </button>
      </Menu.Target>
      <Menu.Dropdown>
        <Act icon={IconUser} onClick={() => navigate({ to: '/profile' })}>
          Profile
        </Act>
        <SegmentedControl
          fullWidth
          size="xs"
          m={4}
          aria-label="Colours"
          value={colorScheme}
          onChange={(value) => setColorScheme(value as 'light' | 'dark' | 'auto')}
          data={[
            { value: 'light', label: 'Light' },
            { value: 'dark', label: 'Dark' },
            { value: 'auto', label: 'System' },
          ]}
        />
        <ZoneChoice />
        <Menu.Divider />
        <Act
          icon={IconLogout}
          onClick={async () => {
            if (await mayLeave()) signOut().catch((error) => failed('Could not sign out', error));
          }}
        >
          Sign out
        </Act>
      </Menu.Dropdown>
    </Menu>
  );
}
