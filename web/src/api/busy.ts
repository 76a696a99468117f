import { useSyncExternalStore } from 'react';
import type { ProblemError } from './problem';

/** Until when the server denies requests, because too many were expensive, and whose they were. */
export interface Busy {
  until: number;
  reason: string;
}

/** The latest denial. The client sets it; the banner shows it. */
let busy: Busy | null = null;
const listeners = new Set<() => void>();

/** Notes a denial by an allowance. Its wait is in Retry-After. */
export function noteBusy({ document, retryAfter }: ProblemError): void {
  const [reason = document.title] = (document.detail ?? document.title).split(';');
  busy = { until: Date.now() + (retryAfter ?? 1) * 1000, reason };
  for (const listener of listeners) listener();
}

export function useBusy(): Busy | null {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => busy,
  );
}
