import { useSyncExternalStore } from 'react';

/**
 * Signing in again. The client asks here when the server wants a fresh session; the dialog answers. Requests that ask at
 * the same time share one answer.
 */
let asked: { answer: Promise<boolean>; resolve: (confirmed: boolean) => void } | null = null;
const listeners = new Set<() => void>();

function notify(): void {
  for (const listener of listeners) listener();
}

/** Resolves with whether the person has signed in again. */
export function askForProof(): Promise<boolean> {
  if (!asked) {
    let resolve: (confirmed: boolean) => void = () => undefined;
    const answer = new Promise<boolean>((then) => {
      resolve = then;
    });
    asked = { answer, resolve };
    notify();
  }
  return asked.answer;
}

export function answerProof(confirmed: boolean): void {
  asked?.resolve(confirmed);
  asked = null;
  notify();
}

export function useProofAsked(): boolean {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => asked !== null,
  );
}
