import { useEffect, useState } from 'react';
import type { Bucket } from '~/api/types';
import { roomOf } from '~/domain/lent';

const frame = 100;

export function levelAfter(
  bucket: Pick<Bucket, 'tokens' | 'burst_capacity' | 'rate_per_second' | 'lent'>,
  ms: number,
): number {
  const { tokens, rate_per_second } = bucket;
  return Math.min(roomOf(bucket), tokens + (Math.max(0, ms) / 1000) * rate_per_second);
}

/** Between two reads the level refills as on the server. A full bucket does not re-render. */
export function useLevel(bucket: Bucket, readAt: number): number {
  const [now, setNow] = useState(readAt);
  const level = levelAfter(bucket, now - readAt);
  const full = level >= roomOf(bucket) || bucket.rate_per_second === 0; // a window changes at its end only
  useEffect(() => {
    if (full) return;
    const timer = setInterval(() => setNow(Date.now()), frame);
    return () => clearInterval(timer);
  }, [full]);
  return level;
}
