import { createParser, type EventSourceMessage } from 'eventsource-parser';
import { api } from './client';
import type { Violation } from './types';
import type { ViolationFilter } from './violations';

export type TailEvent =
  | { event: 'violation'; violation: Violation }
  | { event: 'skipped' }
  | { event: 'ended'; reason: string };

/** The id of the last event that was read, over several connections. */
export interface TailPosition {
  id?: string;
}

/**
 * Ends when the signal aborts or the stream ends; a broken connection throws. With the same position a later call goes
 * on from there. EventSource would hide why a request is refused.
 */
export async function* tail(
  tenant: string,
  filter: ViolationFilter,
  position: TailPosition,
  signal: AbortSignal,
): AsyncGenerator<TailEvent[]> {
  const stream = await api.get('/api/v1/tenants/{tenant}/violations/tail', {
    tenant,
    ...filter,
    headers: position.id === undefined ? {} : { 'Last-Event-ID': position.id },
    parseAs: 'stream',
    signal,
  });
  const reader = (stream as unknown as ReadableStream<Uint8Array>).getReader();
  const decoder = new TextDecoder();
  let events: TailEvent[] = [];
  const parser = createParser({
    onEvent(message) {
      if (message.id) position.id = message.id;
      const event = read(message);
      if (event) events.push(event);
    },
  });
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      parser.feed(decoder.decode(value, { stream: true }));
      yield events; // also when there are none: the stream is alive
      events = [];
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}

/** Null for events of later servers. */
function read({ event, data }: EventSourceMessage): TailEvent | null {
  switch (event) {
    case 'violation':
      return { event, violation: JSON.parse(data) as Violation };
    case 'skipped':
      return { event };
    case 'ended':
      return { event, reason: (JSON.parse(data) as { reason: string }).reason };
    default:
      return null;
  }
}
