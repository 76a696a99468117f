import { useQueryClient } from '@tanstack/react-query';
import { useEffect, useState } from 'react';
import { AwayError, isStatus } from '~/api/problem';
import { sessionKey, tenantKey } from '~/api/queries';
import { type TailEvent, type TailPosition, tail } from '~/api/tail';
import type { Violation } from '~/api/types';
import type { ViolationFilter } from '~/api/violations';

const most = 2_000;
const patience = 2_000;

export interface Tail {
  /** Rows since the first start, latest first. Pausing keeps them. */
  rows: Violation[];
  /** How many of the first rows are held back, so that no row moves under the pointer. */
  waiting: number;
  /** Older rows were dropped, so some are missing between these and the list. */
  dropped: boolean;
  state: 'off' | 'connecting' | 'live' | 'stopped';
  /** The server skipped some violations. */
  skipped: boolean;
  /** Why it stopped. */
  error: unknown;
}

const off: Tail = { rows: [], waiting: 0, dropped: false, state: 'off', skipped: false, error: null };

/**
 * Violations as they arrive, while `wanted`. It reconnects after a restart, and the server sends what arrived
 * since. At each start, and where the server skipped some, the lists are refetched. Another range or filter
 * starts over.
 */
export function useTail(tenant: string, filter: ViolationFilter, range: string, wanted: boolean) {
  const queries = useQueryClient();
  const [now, setNow] = useState<Tail>(off);
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
    const signedOut = () => queries.invalidateQueries({ queryKey: sessionKey });
    const refill = () => queries.invalidateQueries({ queryKey: tenantKey(tenant, 'violations') });
    watch(tenant, JSON.parse(asked) as ViolationFilter, stop.signal, setNow, { signedOut, refill });
    return () => stop.abort();
  }, [tenant, asked, wanted, queries]);

  return {
    ...now,
    /** Shows the held rows. */
    show: () => setNow((before) => ({ ...before, waiting: 0 })),
    /** Drops the rows and refetches the lists. */
    forget() {
      setNow((before) => ({ ...off, state: before.state }));
      queries.invalidateQueries({ queryKey: tenantKey(tenant, 'violations') });
    },
  };
}

type Update = (change: (now: Tail) => Tail) => void;

interface Hooks {
  signedOut: () => void;
  /** The stream skipped violations. */
  refill: () => void;
}

async function watch(
  tenant: string,
  filter: ViolationFilter,
  signal: AbortSignal,
  update: Update,
  { signedOut, refill }: Hooks,
): Promise<void> {
  const position: TailPosition = {};
  let begins = true;
  while (!signal.aborted) {
    try {
      update((now) => ({ ...now, state: 'connecting' }));
      let resumes = position.id !== undefined;
      for await (const events of tail(tenant, filter, position, signal)) {
        if (begins || (resumes && events.some(({ event }) => event === 'skipped'))) refill();
        begins = false;
        resumes &&= events.length === 0; // until it sent what arrived meanwhile
        update((now) => arrived(now, events));
        const end = events.find((event) => event.event === 'ended');
        if (end?.reason === 'signed_out') return signedOut();
        if (end?.reason === 'forbidden') {
          const error = new Error('You no longer have access to this tenant.');
          return update((now) => ({ ...now, state: 'stopped', error }));
        }
      }
    } catch (error) {
      if (signal.aborted) return;
      const passes = error instanceof AwayError || error instanceof TypeError || isStatus(error, 503);
      if (!passes) return update((now) => ({ ...now, state: 'stopped', error }));
    }
    await pause(signal);
  }
}

function arrived(now: Tail, events: TailEvent[]): Tail {
  const known = new Set(now.rows.map(({ violation_id }) => violation_id));
  const fresh = events
    .filter((event) => event.event === 'violation')
    .map(({ violation }) => violation)
    .filter(({ violation_id }) => !known.has(violation_id));
  const skipped = now.skipped || events.some(({ event }) => event === 'skipped');
  const rows = [...fresh.reverse(), ...now.rows];
  return {
    ...now,
    state: 'live',
    skipped,
    dropped: now.dropped || rows.length > most,
    rows: rows.slice(0, most),
    waiting: Math.min(most, now.waiting + fresh.length),
  };
}

function pause(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, patience);
    signal.addEventListener('abort', () => {
      clearTimeout(timer);
      resolve();
    });
  });
}
