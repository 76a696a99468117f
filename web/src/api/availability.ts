import type { ProblemError } from './problem';
import { makeStore } from './store';

export const away = makeStore(false);

/** When the server accepts requests again, and its reason. */
interface Busy {
  until: number;
  reason: string;
}

export const busy = makeStore<Busy | null>(null);

export function noteBusy({ document, retryAfter }: ProblemError): void {
  const [reason = document.title] = (document.detail ?? document.title).split(';');
  busy.set({ until: Date.now() + (retryAfter ?? 1) * 1000, reason });
}
