interface Waits {
  acts: Set<() => void>;
  listener: () => void;
}

const waiting = new WeakMap<AbortSignal, Waits>();

/**
 * Acts once when a signal aborts, unless the returned function is called before. A signal gets one listener, because
 * Node warns of a leak at eleven.
 */
export function onAbort(signal: AbortSignal | undefined, act: () => void): () => void {
  if (!signal) return () => undefined;
  let waits = waiting.get(signal);
  if (!waits) {
    const acts = new Set<() => void>();
    const listener = () => {
      waiting.delete(signal);
      for (const act of acts) act();
    };
    waits = { acts, listener };
    waiting.set(signal, waits);
    signal.addEventListener('abort', listener, { once: true });
  }
  const { acts, listener } = waits;
  acts.add(act);
  return () => {
    if (acts.delete(act) && acts.size === 0) {
      waiting.delete(signal);
      signal.removeEventListener('abort', listener);
    }
  };
}
