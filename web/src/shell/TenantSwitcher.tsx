import { Menu, ScrollArea } from '@mantine/core';
import { useNavigate, useParams } from '@tanstack/react-router';
import { IconCheck, IconSelector } from '~/components/icons';
import { useSession } from '~/session';
import { Logo } from './Logo';
import styles from './TenantSwitcher.module.css';

/** Which tenant everything on the screen belongs to, and the way to another. */
export function TenantSwitcher() {
  const { memberships } = useSession();
  const { tenant } = useParams({ strict: false });
  const navigate = useNavigate();
  const current = memberships.find((one) => one.tenant.slug === tenant);
  if (!tenant && memberships.length === 0) {
    return (
      <div className={styles.alone}>
        <Logo />
      </div>
    );
  }

  return (
    <Menu width={240}>
      <Menu.Target>
        <button type="button" className={styles.current}>
          <Initial name={current?.tenant.name ?? tenant ?? '–'} />
          <span className="aside">Tenant: </span>
          <span className={styles.name}>{current?.tenant.name ?? tenant ?? 'Choose a tenant'}</span>
          <IconSelector size={14} aria-hidden />
        </button>
      </Menu.Target>
      <Menu.Dropdown>
        <ScrollArea.Autosize mah={360}>
          {memberships.map(({ tenant: { slug, name }, role, suspended }) => (
            <Menu.Item
              key={slug}
              leftSection={<Initial name={name} />}
              rightSection={slug === tenant ? <IconCheck size={14} aria-label="This one" /> : undefined}
              onClick={() => navigate({ to: '/t/$tenant/overview', params: { tenant: slug } })}
            >
              {name}
              <span className={styles.role}>{suspended ? 'suspended' : role}</span>
            </Menu.Item>
          ))}
        </ScrollArea.Autosize>
      </Menu.Dropdown>
    </Menu>
  );
}

function Initial({ name }: { name: string }) {
  return (
    <span className={styles.initial} aria-hidden>
      {name.slice(0, 1).toUpperCase()}
    </span>
  );
}
