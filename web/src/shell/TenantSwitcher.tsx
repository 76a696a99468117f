import { Combobox, useCombobox } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { useState } from 'react';
import { tenantQuery } from '~/api/queries';
import { InShadow } from '~/components/InShadow';
import { IconCheck, IconSearch, IconSelector, IconTenants } from '~/components/icons';
import { useSession } from '~/session';
import { Logo } from './Logo';
import { useTenantName } from './TenantName';
import styles from './TenantSwitcher.module.css';
import { useShownTenant } from './useShownTenant';
import { useTenantChoices } from './useTenantChoices';

const allTenants = 'all tenants';

export function TenantSwitcher() {
  const { account, memberships } = useSession();
  const tenant = useShownTenant();
  const navigate = useNavigate();
  const [query, setQuery] = useState('');
  const menu = useCombobox({
    onDropdownOpen: () => menu.focusSearchInput(),
    onDropdownClose: () => {
      setQuery('');
      menu.resetSelectedOption();
    },
  });
  const choices = useTenantChoices(query, menu.dropdownOpened);
  const name = useTenantName(tenant);
  const { data: here } = useQuery({ ...tenantQuery(tenant ?? ''), enabled: tenant !== undefined });
  if (!tenant && memberships.length === 0 && !account.platform_admin) {
    return (
      <div className={styles.alone}>
        <Logo />
      </div>
    );
  }

  function open(slug: string) {
    menu.closeDropdown();
    if (slug === allTenants) navigate({ to: '/platform/tenants' });
    else navigate({ to: '/t/$tenant/overview', params: { tenant: slug } });
  }
  return (
    <Combobox
      store={menu}
      width={240}
      position="bottom-start"
      withinPortal={false}
      keepMounted={false} // placing a closed one would lay out the page a second time while it starts
      onOptionSubmit={open}
    >
      <Combobox.Target targetType="button">
        <button type="button" className={styles.current} onClick={() => menu.toggleDropdown()}>
          <Initial name={name ?? '–'} />
          <span className="aside">Tenant: </span>
          <span className={styles.name}>{name ?? 'Choose a tenant'}</span>
          {here?.value.enforcement === 'shadow' && <InShadow />}
          <IconSelector size={14} aria-hidden />
        </button>
      </Combobox.Target>
      <Combobox.Dropdown>
        <Combobox.Search
          aria-label="Find a tenant"
          placeholder="Find a tenant"
          leftSection={<IconSearch size={14} aria-hidden />}
          value={query}
          onChange={(event) => {
            setQuery(event.currentTarget.value);
            menu.resetSelectedOption();
          }}
          onKeyDown={(event) => {
            const [first] = choices;
            if (event.key === 'Enter' && menu.getSelectedOptionIndex() < 0 && first) open(first.slug);
          }}
        />
        <Combobox.Options mah={360} className={styles.choices} aria-label="Tenants">
          {choices.map(({ slug, name, note, inShadow }) => (
            <Combobox.Option key={slug} value={slug} active={slug === tenant} className={styles.choice}>
              <Initial name={name} />
              <span className={styles.name}>
                {name}
                {note && <span className={styles.role}>{note}</span>}
              </span>
              {inShadow && <InShadow />}
              {slug === tenant && <IconCheck size={14} aria-label="This one" />}
            </Combobox.Option>
          ))}
          {choices.length === 0 && <Combobox.Empty>No results</Combobox.Empty>}
          {account.platform_admin && (
            <Combobox.Option value={allTenants} className={styles.choice}>
              <IconTenants size={16} aria-hidden />
              All tenants
            </Combobox.Option>
          )}
        </Combobox.Options>
      </Combobox.Dropdown>
    </Combobox>
  );
}

function Initial({ name }: { name: string }) {
  return (
    <span className={styles.initial} aria-hidden>
      {name.slice(0, 1).toUpperCase()}
    </span>
  );
}
