import { Tooltip } from '@mantine/core';
import { useSyncExternalStore } from 'react';
import { serverNow } from '~/api/clock';
import { duration, exactTime, relative } from '~/domain/format';

/** A clock is shared by all texts of its interval, so that they show ages of the same moment. */
function makeClock(every: number) {
  const listeners = new Set<() => void>();
  let now = 0;
  let timer: ReturnType<typeof setInterval> | undefined;
  const tick = () => {
    now = serverNow();
    for (const listener of listeners) listener();
  };
  return {
    subscribe(listener: () => void) {
      listeners.add(listener);
      timer ??= setInterval(tick, every);
      return () => {
        listeners.delete(listener);
        if (listeners.size > 0) return;
        clearInterval(timer);
        timer = undefined;
      };
    },
    read() {
      // Nothing ticks without listeners, so the time is an old one.
      if (listeners.size === 0 && Math.abs(serverNow() - now) >= every) now = serverNow();
      return now;
    },
  };
}

const clocks = new Map<number, ReturnType<typeof makeClock>>();

function clockOf(every: number) {
  const clock = clocks.get(every) ?? makeClock(every);
  clocks.set(every, clock);
  return clock;
}

/**
 * The server's time, updated at an interval in milliseconds. Above what relative times call "just now", a new event
 * would seem to be in the future.
 */
export function useNow(every = 5_000): number {
  const { subscribe, read } = clockOf(every);
  return useSyncExternalStore(subscribe, read);
}

/** The latest of some moments that is over by the server's clock, or -Infinity. */
export function useLastPassed(moments: number[]): number {
  const { subscribe, read } = clockOf(1000);
  return useSyncExternalStore(subscribe, () => {
    const now = read();
    return moments.reduce((last, moment) => (moment <= now && moment > last ? moment : last), Number.NEGATIVE_INFINITY);
  });
}

export function RelativeTime({ at }: { at: string }) {
  const now = useNow();
  const time = Date.parse(at);
  return (
    <Tooltip label={exactTime(time)}>
      <time dateTime={at} className="numeric">
        {relative(time, now)}
      </time>
    </Tooltip>
  );
}

export function Duration({ ms }: { ms: number }) {
  return <span className="numeric">{duration(ms)}</span>;
}
