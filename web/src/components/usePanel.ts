import { type LinkProps, useNavigate, useRouter, useSearch } from '@tanstack/react-router';

declare module '@tanstack/react-router' {
  interface HistoryState {
    /** A panel was opened over the entry before this one. */
    panel?: boolean;
  }
}

/**
 * Opens the panel that a parameter of the address names, and closes it without a value. All rows that are walked
 * share one history entry, so that back leaves the panel instead of stepping through them.
 */
export function usePanel<Value extends string | number>(parameter: 'open' | 'entry' | 'override') {
  const navigate = useNavigate();
  const router = useRouter();
  const isOpen = (useSearch({ strict: false }) as Record<string, unknown>)[parameter] !== undefined;
  return (value: Value | undefined) => {
    const opened = router.history.location.state.panel;
    if (value === undefined && opened) return router.history.back();
    navigate({
      to: '.',
      search: (before: object) => ({ ...before, [parameter]: value }),
      replace: isOpen,
      state: { panel: value !== undefined && (!isOpen || opened) },
      resetScroll: false,
    });
  };
}

/** This page with something of its address changed: where the row of a panel leads. */
export function here(change: { open?: string; entry?: number }): LinkProps {
  return { to: '.', search: (before: object) => ({ ...before, ...change }), resetScroll: false } as LinkProps;
}
