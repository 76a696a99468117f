import { makeStore, useStore } from './store';

/**
 * Signing in again. The client asks here when the server wants a fresh session; the dialog answers. Requests that ask
 * at the same time share one answer.
 */
const asked = makeStore<{ answer: Promise<boolean>; resolve: (confirmed: boolean) => void } | null>(null);

export function askForProof(): Promise<boolean> {
  const before = asked.get();
  if (before) return before.answer;
  let resolve: (confirmed: boolean) => void = () => undefined;
  const answer = new Promise<boolean>((then) => {
    resolve = then;
  });
  asked.set({ answer, resolve });
  return answer;
}

export function answerProof(confirmed: boolean): void {
  asked.get()?.resolve(confirmed);
  asked.set(null);
}

export function useProofAsked(): boolean {
  return useStore(asked) !== null;
}
