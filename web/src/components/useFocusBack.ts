import { useEffect, useMemo } from 'react';

/** Mantine gives the focus back only from a modal that stays mounted when it closes. */
export function useFocusBack(isOpen: boolean) {
  // Read while rendering, because a menu is closed before effects run.
  const before = useMemo(() => (isOpen ? opener() : null), [isOpen]);
  useEffect(() => {
    if (!isOpen) return;
    return () => {
      // After whatever else moves the focus, such as another page that opens.
      setTimeout(() => {
        if (document.activeElement !== document.body) return;
        const isThere = before?.isConnected && before !== document.body;
        const to = isThere ? before : document.getElementById('content');
        to?.focus({ preventScroll: true });
      });
    };
  }, [isOpen, before]);
}

function opener(): HTMLElement | null {
  const active = document.activeElement as HTMLElement | null;
  const menu = active?.closest('[role="menu"]');
  return menu ? document.getElementById(menu.getAttribute('aria-labelledby') ?? '') : active;
}
