import { useQueryClient } from '@tanstack/react-query';
import { useEffect, useRef, useState } from 'react';
import { AwayError, isStatus } from '~/api/problem';
import { sessionKey, tenantKey } from '~/api/queries';
import { type TailEvent, type TailPosition, tail } from '~/api/tail';
import type { Violation } from '~/api/types';
import { type ViolationFilter, violationsSince } from '~/api/violations';
import { laterFirst } from '~/domain/violation';

const most = 2_000;
const patience = 2_000;
/** Violations are written up to so many milliseconds after they happened. */
const lateness = 10_000;

interface Tail {
  /** Rows since the first start, latest first. Pausing keeps them. */
  rows: Violation[];
  /** The ids of rows that are held back, so that no row moves under the pointer. */
  held: ReadonlySet<string>;
  dropped: boolean;
  state: 'off' | 'connecting' | 'live' | 'stopped';
  /** Rows are missing between this time and the ones before it, because too many arrived meanwhile. */
  gap: string | null;
  error: unknown;
}

const off: Tail = { rows: [], held: new Set(), dropped: false, state: 'off', gap: null, error: null };

/**
 * Violations as they arrive, while `wanted`. At each start and after a lost connection the list fills the gap. Pausing
 * keeps the rows. Another range or filter starts over with its list.
 */
export function useTail(tenant: string, filter: ViolationFilter, range: string, wanted: boolean) {
  const queries = useQueryClient();
  const [now, setNow] = useState<Tail>(off);
  // The latest row that is shown or held: later ones are missing after a pause.
  const latest = useRef<Violation>(undefined);
  const asked = JSON.stringify(filter);
  const of = `${asked} ${range}`;
  const [began, setBegan] = useState(of);
  if (began !== of) {
    setBegan(of);
    setNow(off);
  }

  useEffect(() => {
    setNow((before) => ({ ...before, state: wanted ? 'connecting' : 'off', error: null }));
    if (!wanted) return;
    const stop = new AbortController();
    const given = JSON.parse(asked) as ViolationFilter;
    const signedOut = () => queries.invalidateQueries({ queryKey: sessionKey });
    const fill = async () => {
      const from = latest.current;
      if (!from) return queries.invalidateQueries({ queryKey: tenantKey(tenant, 'violations') });
      const since = Date.parse(from.requested_at) - lateness;
      const { items, rest } = await violationsSince(tenant, given, since, stop.signal);
      const gap = rest ? (items.at(-1)?.requested_at ?? null) : null;
      setNow((before) => ({ ...withRows(before, items), gap: gap ?? before.gap }));
    };
    watch(tenant, given, stop.signal, setNow, { signedOut, fill });
    return () => stop.abort();
  }, [tenant, asked, wanted, queries]);

  return {
    ...now,
    latest,
    show: () => setNow((before) => ({ ...before, held: new Set() })),
    forget() {
      setNow((before) => ({ ...off, state: before.state }));
      queries.invalidateQueries({ queryKey: tenantKey(tenant, 'violations') });
    },
  };
}

type Update = (change: (now: Tail) => Tail) => void;

interface Hooks {
  signedOut: () => void;
  fill: () => Promise<unknown>;
}

async function watch(
  tenant: string,
  filter: ViolationFilter,
  signal: AbortSignal,
  update: Update,
  { signedOut, fill }: Hooks,
): Promise<void> {
  const position: TailPosition = {};
  while (!signal.aborted) {
    let wait = patience;
    try {
      update((now) => ({ ...now, state: 'connecting' }));
      let begins = true;
      let filled = false; // the list has what the first events skip
      for await (const events of tail(tenant, filter, position, signal)) {
        if (begins) await fill();
        begins = false;
        update((now) => arrived(now, events, filled));
        filled ||= events.length > 0;
        const end = events.find((event) => event.event === 'ended');
        if (end?.reason === 'signed_out') return signedOut();
        if (end?.reason === 'forbidden') {
          const error = new Error('You no longer have access to this tenant.');
          return update((now) => ({ ...now, state: 'stopped', error }));
        }
      }
    } catch (error) {
      if (signal.aborted) return;
      if (!passes(error)) return update((now) => ({ ...now, state: 'stopped', error }));
      update((now) => ({ ...now, error: isStatus(error, 429) ? error : null }));
      if (isStatus(error, 429)) wait = Math.max(patience, (error.retryAfter ?? 0) * 1000);
    }
    await pause(wait, signal);
  }
}

function arrived(now: Tail, events: TailEvent[], skips: boolean): Tail {
  const violations = events.filter((event) => event.event === 'violation').map(({ violation }) => violation);
  const skipped = skips && events.some(({ event }) => event === 'skipped');
  const gap = skipped ? (violations[0]?.requested_at ?? now.gap) : now.gap;
  return { ...withRows(now, violations), state: 'live', gap, error: null };
}

function withRows(now: Tail, more: Violation[]): Tail {
  const known = new Set(now.rows.map(({ violation_id }) => violation_id));
  const fresh = more.filter(({ violation_id }) => !known.has(violation_id) && known.add(violation_id));
  if (fresh.length === 0) return now;
  const rows = [...fresh, ...now.rows].toSorted(laterFirst);
  return {
    ...now,
    dropped: now.dropped || rows.length > most,
    rows: rows.slice(0, most),
    held: new Set([...now.held, ...fresh.map(({ violation_id }) => violation_id)]),
  };
}

function passes(error: unknown): boolean {
  return error instanceof AwayError || error instanceof TypeError || isStatus(error, 503) || isStatus(error, 429);
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener('abort', () => {
      clearTimeout(timer);
      resolve();
    });
  });
}
