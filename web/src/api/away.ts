import { makeStore, useStore } from './store';

const away = makeStore(false);

export const noteAway = away.set;

export function useAway(): boolean {
  return useStore(away);
}
