import { ActionIcon } from '@mantine/core';
import { useHotkeys } from '@mantine/hooks';
import { useQuery } from '@tanstack/react-query';
import { Outlet, useLocation, useParams, useRouter } from '@tanstack/react-router';
import { Suspense, useEffect, useRef, useState } from 'react';
import { sessionQuery } from '~/api/queries';
import { IconMenu, IconSearch } from '~/components/icons';
import { later } from '~/components/later';
import { LoadingLines, NeedsFactor } from '~/components/states';
import { needsFactor, SessionContext } from '~/session';
import { Logo } from './Logo';
import { ShadowBanner } from './ShadowBanner';
import styles from './Shell.module.css';
import { Sidebar } from './Sidebar';
import { TenantName } from './TenantName';

const CommandPalette = later(() => import('./CommandPalette'));
const PhoneMenu = later(() => import('./PhoneMenu'));

export function Shell() {
  const [menu, setMenu] = useState<'never' | 'open' | 'closed'>('never');
  const [palette, setPalette] = useState<'never' | 'open' | 'closed'>('never');
  const main = useRef<HTMLElement>(null);
  const { pathname } = useLocation();
  const { tenant } = useParams({ strict: false }) as { tenant?: string };
  const router = useRouter();
  const { data: session } = useQuery(sessionQuery);
  const [query, setQuery] = useState('');
  const find = () => {
    setQuery('');
    setPalette('open');
  };
  useTypedEarly(palette === 'open', setQuery);
  useHotkeys([['mod+K', find]], []);

  // Screen readers announce the new screen, and Tab starts there.
  const shown = useRef(pathname);
  useEffect(() => {
    if (shown.current !== pathname) main.current?.focus({ preventScroll: true });
    shown.current = pathname;
  }, [pathname]);

  useEffect(
    () => router.subscribe('onBeforeNavigate', () => setMenu((now) => (now === 'open' ? 'closed' : now))),
    [router],
  );

  useEffect(() => {
    if (!session) router.invalidate();
  }, [session, router]);

  if (!session) return <LoadingLines />;
  const closed = pathname !== '/profile' && needsFactor(session, tenant);
  return (
    <SessionContext value={session}>
      <div className={styles.shell}>
        <a className={styles.skip} href="#content">
          Skip to content
        </a>
        <header className={styles.phoneBar}>
          <ActionIcon aria-label="Menu" aria-expanded={menu === 'open'} onClick={() => setMenu('open')}>
            <IconMenu size={18} />
          </ActionIcon>
          <span className={styles.where}>
            <Logo />
            {tenant && <TenantName slug={tenant} />}
          </span>
          <ActionIcon aria-label="Search" onClick={find}>
            <IconSearch size={18} />
          </ActionIcon>
        </header>
        {menu !== 'never' && <PhoneMenu opened={menu === 'open'} onClose={() => setMenu('closed')} onFind={find} />}
        <aside className={styles.sidebar} aria-label="Tenant and screens">
          <Sidebar onFind={find} />
        </aside>
        <main ref={main} id="content" className={styles.main} tabIndex={-1}>
          {!closed && <ShadowBanner />}
          <Suspense fallback={<LoadingLines />}>{closed ? <NeedsFactor /> : <Outlet />}</Suspense>
        </main>
        {palette !== 'never' && (
          <CommandPalette
            opened={palette === 'open'}
            query={query}
            onQuery={setQuery}
            onClose={() => setPalette('closed')}
          />
        )}
      </div>
    </SessionContext>
  );
}

function useTypedEarly(opened: boolean, setQuery: (change: (query: string) => string) => void) {
  useEffect(() => {
    if (!opened) return;
    const keep = (event: KeyboardEvent) => {
      const { key, target, ctrlKey, metaKey, altKey } = event;
      if (key.length !== 1 || ctrlKey || metaKey || altKey) return;
      if (target instanceof Element && target.getAttribute('role') === 'combobox') return;
      event.preventDefault();
      event.stopPropagation();
      setQuery((query) => query + key);
    };
    document.addEventListener('keydown', keep, true);
    return () => document.removeEventListener('keydown', keep, true);
  }, [opened, setQuery]);
}
