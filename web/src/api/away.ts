import { useSyncExternalStore } from 'react';

/** Whether the server answered when it was last asked. The client tells; the banner listens. */
let away = false;
const listeners = new Set<() => void>();

export function noteAway(now: boolean): void {
  if (now === away) return;
  away = now;
  for (const listener of listeners) listener();
}

export function useAway(): boolean {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => away,
  );
}
