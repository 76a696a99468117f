import type { ProblemError } from './problem';
import { makeStore, useStore } from './store';

/** When the server accepts requests again, and its reason. */
interface Busy {
  until: number;
  reason: string;
}

const busy = makeStore<Busy | null>(null);

export function noteBusy({ document, retryAfter }: ProblemError): void {
  const [reason = document.title] = (document.detail ?? document.title).split(';');
  busy.set({ until: Date.now() + (retryAfter ?? 1) * 1000, reason });
}

export function useBusy(): Busy | null {
  return useStore(busy);
}
