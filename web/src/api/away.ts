import { useSyncExternalStore } from 'react';

/** Whether the last request got no answer. The client sets it; the banner shows it. */
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
