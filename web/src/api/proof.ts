import { makeStore, useStore } from './store';

/** Requests that ask for a recent sign-in at the same time share one answer. */
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
