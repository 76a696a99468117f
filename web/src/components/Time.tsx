import { Tooltip } from '@mantine/core';
import { useEffect, useState } from 'react';
import { serverNow } from '~/api/clock';
import { duration, exactTime, relative } from '~/domain/format';

/** The current time by the server's clock, updated at an interval in milliseconds. */
export function useNow(every = 10_000): number {
  const [now, setNow] = useState(serverNow);
  useEffect(() => {
    const timer = setInterval(() => setNow(serverNow()), every);
    return () => clearInterval(timer);
  }, [every]);
  return now;
}

/** "3 min ago", with the exact time on hover. */
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

/** "350 ms", "2 min" */
export function Duration({ ms }: { ms: number }) {
  return <span className="numeric">{duration(ms)}</span>;
}
