import { type LinkProps, useNavigate, useRouter, useSearch } from '@tanstack/react-router';

declare module '@tanstack/react-router' {
  interface HistoryState {
    panel?: boolean;
  }
}

export const panelParameters = ['open', 'entry', 'override', 'erasure', 'export'] as const;

/** All rows share one history entry, so back leaves the panel. */
export function usePanel<Value extends string>(parameter: (typeof panelParameters)[number]) {
  const navigate = useNavigate();
  const router = useRouter();
  const isOpen = (useSearch({ strict: false }) as Record<string, unknown>)[parameter] !== undefined;
  return (value: Value | undefined) => {
    const opened = router.history.location.state.panel;
    if (value === undefined && opened) return router.history.back({ ignoreBlocker: true });
    navigate({
      to: '.',
      search: (before: object) => ({ ...before, [parameter]: value }),
      replace: isOpen,
      state: { panel: value !== undefined && (!isOpen || opened) },
      resetScroll: false,
      ignoreBlocker: true,
    });
  };
}

export function here(change: { open?: string; entry?: string }): LinkProps {
  return { to: '.', search: (before: object) => ({ ...before, ...change }), resetScroll: false } as LinkProps;
}
