import type { ProcessStatus, TenantStatus } from '~/api/types';
import type { Tone } from '~/components/Outcome';
import { duration, percent } from '~/domain/format';

/** Rules are polled every second. Older ones mean that several polls were missed. */
export const oldRules = 10_000;
/** Processes report every five seconds. */
const silent = 15_000;

export function ailments(process: ProcessStatus, now: number): string[] {
  const { rules_loaded, rules_age_ms, database, redis, redis_down, degraded_share, reported_at } = process;
  const quiet = now - Date.parse(reported_at);
  const found = [
    quiet > silent && `no report for ${duration(quiet)}`,
    !rules_loaded && 'no rules loaded',
    rules_loaded && rules_age_ms !== null && rules_age_ms > oldRules && `rules are ${duration(rules_age_ms)} old`,
    database !== 'up' && 'database down: the last rules stay in force',
    redis === 'down' && 'Redis down: failure modes apply',
    redis === 'partial' && `Redis down at ${redis_down.join(', ')}`,
    degraded_share > 0 && `${percent(degraded_share)} of decisions degraded`,
  ];
  return found.filter((one) => one !== false);
}

export function redisOf({ redis }: Pick<TenantStatus, 'redis'>): { tone: Tone; word: string; note: string } {
  switch (redis) {
    case 'down':
      return { tone: 'denied', word: 'Down', note: 'failure modes apply' };
    case 'partial':
      return { tone: 'degraded', word: 'Partly down', note: 'failure modes apply to some tenants' };
    case 'memory':
      return { tone: 'neutral', word: 'Not used', note: 'each process keeps buckets in memory' };
    case 'up':
      return { tone: 'allowed', word: 'Up', note: 'stores the buckets' };
    default:
      return { tone: 'neutral', word: 'Unknown', note: 'not checked yet' };
  }
}
