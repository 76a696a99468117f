import { useEffect, useState } from 'react';
import type { Bucket } from '~/api/types';

const frame = 100;

/** The level of a bucket some milliseconds after it was read, if nothing was taken. */
export function levelAfter(
  bucket: Pick<Bucket, 'tokens' | 'burst_capacity' | 'rate_per_second'>,
  ms: number,
): number {
  const { tokens, burst_capacity, rate_per_second } = bucket;
  return Math.min(burst_capacity, tokens + (Math.max(0, ms) / 1000) * rate_per_second);
}

/** The current level: between two reads it refills as on the server. A full bucket does not re-render. */
export function useLevel(bucket: Bucket, readAt: number): number {
  const [now, setNow] = useState(readAt);
  const level = levelAfter(bucket, now - readAt);
  const full = level >= bucket.burst_capacity || bucket.rate_per_second === 0; // a window changes at its end only
  useEffect(() => {
    if (full) return;
    const timer = setInterval(() => setNow(Date.now()), frame);
    return () => clearInterval(timer);
  }, [full]);
  return level;
}
