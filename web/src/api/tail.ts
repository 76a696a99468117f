import { api } from './client';
import type { Violation } from './types';
import type { ViolationFilter } from './violations';

/** What the stream says: a violation, that there were too many to show, or that it ended and why. */
export type TailEvent =
  | { event: 'violation'; violation: Violation }
  | { event: 'skipped' }
  | { event: 'ended'; reason: string };

/** How far one has read, over several connections: the id of the last event. */
export interface TailPosition {
  id?: string;
}

/**
 * Watches violations arrive until the signal aborts, the stream ends or the connection breaks, which
 * throws. Each batch is what arrived at once. It is read by fetch, not EventSource: that one hides why a
 * request is refused, and reconnects where there is no point in it. Called again with the same position it goes on
 * where it was: the server then sends what arrived meanwhile.
 */
export async function* tail(
  tenant: string,
  filter: ViolationFilter,
  position: TailPosition,
  signal: AbortSignal,
): AsyncGenerator<TailEvent[]> {
  const { data } = await api.GET('/api/v1/tenants/{tenant}/violations/tail', {
    params: {
      path: { tenant },
      query: filter,
      header: position.id === undefined ? {} : { 'Last-Event-ID': position.id },
    },
    parseAs: 'stream',
    signal,
  });
  if (!data) return;
  const reader = (data as ReadableStream<Uint8Array>).getReader();
  const decoder = new TextDecoder();
  let rest = '';
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const blocks = (rest + decoder.decode(value, { stream: true })).split('\n\n');
      rest = blocks.pop() ?? '';
      const events = blocks.map((block) => parse(block, position)).filter((event) => event !== null);
      yield events; // also of none: the stream lives
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}

/** Reads one event, and moves the position; null for comments and for events of later servers. */
function parse(block: string, position: TailPosition): TailEvent | null {
  let event = '';
  let data = '';
  for (const line of block.split('\n')) {
    if (line.startsWith('event: ')) event = line.slice(7);
    else if (line.startsWith('data: ')) data += line.slice(6);
    else if (line.startsWith('id: ')) position.id = line.slice(4);
  }
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
