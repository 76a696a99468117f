import { useWindowEvent } from '@mantine/hooks';
import { useEffect, useMemo } from 'react';

/** The open dialogs, in their order of opening. */
const open = new Set<number>();
let last = 0;
/** Closing a dialog makes the one below it the topmost, which must not act on the same press. */
const handled = new WeakSet<Event>();

/** Acts on Escape in the topmost dialog alone. Mantine acts in all open ones, so modals set closeOnEscape={false}. */
export function useEscape(isOpen: boolean, act: () => void) {
  // Counted while rendering, because a dialog renders before one inside of it, but its effects run later.
  const place = useMemo(() => (isOpen ? ++last : 0), [isOpen]);
  useEffect(() => {
    if (place === 0) return;
    open.add(place);
    return () => {
      open.delete(place);
    };
  }, [place]);
  useWindowEvent(
    'keydown',
    (event) => {
      if (event.key !== 'Escape' || event.isComposing || handled.has(event)) return;
      if (!isOpen || place !== Math.max(...open)) return;
      // A list or menu in the dialog closes first.
      if ((event.target as Element).getAttribute?.('data-mantine-stop-propagation') === 'true') return;
      handled.add(event);
      act();
    },
    { capture: true },
  );
}
