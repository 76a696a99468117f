import { useEffect, useState } from 'react';
import type { Bucket } from '~/api/types';

const frame = 100;

/** What a bucket holds so many milliseconds after it was read, if nobody took from it. */
export function levelAfter(
  bucket: Pick<Bucket, 'tokens' | 'burst_capacity' | 'rate_per_second'>,
  ms: number,
): number {
  const { tokens, burst_capacity, rate_per_second } = bucket;
  return Math.min(burst_capacity, tokens + (Math.max(0, ms) / 1000) * rate_per_second);
}

/** The level now: between two readings it fills as the server's would. A full bucket rests. */
export function useLevel(bucket: Bucket, readAt: number): number {
  const [now, setNow] = useState(readAt);
  const level = levelAfter(bucket, now - readAt);
  const full = level >= bucket.burst_capacity;
  useEffect(() => {
    if (full) return;
    const timer = setInterval(() => setNow(Date.now()), frame);
    return () => clearInterval(timer);
  }, [full]);
  return level;
}
