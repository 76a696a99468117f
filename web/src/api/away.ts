import { makeStore, useStore } from './store';

/** Whether the last request got no answer. The client sets it; the banner shows it. */
const away = makeStore(false);

export const noteAway = away.set;

export function useAway(): boolean {
  return useStore(away);
}
