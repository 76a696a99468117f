import type { Adapt, Adapting } from '~/api/types';
import { duration, exactNumber } from './format';
import { hasRate, type Limit, rateSentence } from './rate';

export function adaptOf<T extends Adapt | null>(limit: Pick<Limit, 'algorithm'>, adapt: T): T | null {
  return hasRate(limit.algorithm) ? adapt : null;
}

export function adaptText(adapt: Adapt | null): string {
  if (!adapt) return 'no';
  return [`backend ${adapt.backend}`, `floor ${adapt.floor_percent} %`, ...targets(adapt)].join(', ');
}

function targets({ p99_ms, error_percent }: Adapt): string[] {
  return [
    p99_ms ? `p99 at most ${duration(p99_ms)}` : '',
    error_percent ? `errors at most ${error_percent} %` : '',
  ].filter(Boolean);
}

export function adaptSentence(limit: Limit, adapt: Adapt): string {
  const when = targets(adapt).join(' and ');
  if (!adapt.backend || !when) return 'Name the backend, and give at least one target.';
  const floor = { ...limit, rate_per_second: (limit.rate_per_second * adapt.floor_percent) / 100 };
  return (
    `While ${adapt.backend} keeps ${when}, the rate rises up to ${rateSentence(limit)}. ` +
    `While it does not, the rate falls, down to ${rateSentence(floor)}.`
  );
}

export function seenText({ seen }: Pick<Adapting, 'seen'>): string {
  if (!seen || seen.requests === 0) return 'No reports in the last minute';
  const p99 = seen.p99_ms === null ? '' : `, p99 ${duration(Math.round(seen.p99_ms))}`;
  return `${exactNumber(seen.requests)} requests in the last minute, ${exactNumber(seen.errors)} failed${p99}`;
}
