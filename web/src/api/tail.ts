import { createParser, type EventSourceMessage } from 'eventsource-parser';
import { api } from './client';
import type { Violation } from './types';
import type { ViolationFilter } from './violations';

/** An event of the stream: a violation, that there were too many to show, or its end with the reason. */
export type TailEvent =
  | { event: 'violation'; violation: Violation }
  | { event: 'skipped' }
  | { event: 'ended'; reason: string };

/** How far one has read, over several connections: the id of the last event. */
export interface TailPosition {
  id?: string;
}

/**
 * Watches violations arrive until the signal aborts, the stream ends or the connection breaks, which throws. A batch
 * has the violations that arrived at once. EventSource would hide why a request is refused, and reconnect in vain, so
 * fetch reads the stream. With the same position a later call goes on from there: the server sends the violations of
 * the meantime.
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

/** Reads one event; null for events of later servers. */
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
