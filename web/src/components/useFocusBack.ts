import { useEffect } from 'react';

/**
 * Gives the focus back to what opened a dialog, or to the page's content if that is gone. Mantine does so only for a
 * modal that stays mounted when it closes.
 */
export function useFocusBack(isOpen: boolean) {
  useEffect(() => {
    if (!isOpen) return;
    const before = opener();
    return () => {
      // After whatever else moves the focus, such as another page that opens.
      setTimeout(() => {
        if (document.activeElement !== document.body) return;
        const to = before?.isConnected ? before : document.getElementById('content');
        to?.focus({ preventScroll: true });
      });
    };
  }, [isOpen]);
}

/** The element with the focus, or the button of its menu, which is closing. */
function opener(): HTMLElement | null {
  const active = document.activeElement as HTMLElement | null;
  const menu = active?.closest('[role="menu"]');
  return menu ? document.getElementById(menu.getAttribute('aria-labelledby') ?? '') : active;
}
