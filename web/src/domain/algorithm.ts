import type { Rule } from '~/api/types';
import { type Algorithm, hasRate, hasWindow, type Limit, perUnit, type RateUnit, unitOf } from './rate';
import { isCalendar, windowSeconds } from './window';

export const algorithms: Record<Algorithm, { label: string; promise: string; burst: string }> = {
  token_bucket: {
    label: 'Token bucket',
    promise: 'Allows bursts, and the rate in the long run.',
    burst: 'Burst',
  },
  leaky_bucket: {
    label: 'Queue (leaky bucket)',
    promise:
      'Smooth output: requests wait in a queue, and are denied when it is full. Proxies cannot wait, so they deny.',
    burst: 'Places in the queue',
  },
  fixed_window: {
    label: 'Fixed window, quota',
    promise: 'Counts anew in each minute, day or month. Twice the limit can pass around a boundary.',
    burst: 'Requests per window',
  },
  sliding_window: {
    label: 'Sliding window',
    promise: 'About the limit in any interval, with two counters and no jumps at boundaries.',
    burst: 'Requests per window',
  },
  sliding_window_log: {
    label: 'Sliding window, exact',
    promise:
      'Never more than the limit in any interval. Remembers each request, so at most 1,000. Costs are rounded up.',
    burst: 'Requests per window',
  },
  concurrency: {
    label: 'Concurrency',
    promise: 'Limits requests in flight, whatever they cost. Each holds a place until it is released.',
    burst: 'Requests at once',
  },
};

export type LimitDraft = Pick<
  Rule,
  | 'algorithm'
  | 'rate_per_second'
  | 'rate_unit'
  | 'burst_capacity'
  | 'window'
  | 'window_zone'
  | 'window_start_day'
  | 'refill_interval'
  | 'max_hold'
  | 'notify_at'
>;

const noParameters = {
  window: null,
  window_zone: null,
  window_start_day: null,
  refill_interval: null,
  max_hold: null,
  notify_at: [],
};

export const newLimit: LimitDraft = {
  algorithm: 'token_bucket',
  rate_per_second: 10,
  rate_unit: 'second',
  burst_capacity: 50,
  ...noParameters,
};

/** A rule that blocks or lets through must not have these. */
export const noLimit = {
  ...noParameters,
  rate_per_second: 0,
  burst_capacity: 0,
  adapt: null,
  charge: 'before',
} satisfies Pick<Rule, Exclude<keyof LimitDraft, 'algorithm' | 'rate_unit'> | 'adapt' | 'charge'>;

export function fitted(limit: LimitDraft): LimitDraft {
  const { algorithm } = limit;
  const rate = hasRate(algorithm);
  // An unreadable number is NaN, and stays so.
  const burst = limit.burst_capacity === 0 ? newLimit.burst_capacity : limit.burst_capacity;
  const listed = algorithm === 'sliding_window_log' || algorithm === 'concurrency';
  const window = !hasWindow(algorithm)
    ? null
    : algorithm !== 'fixed_window' && isCalendar(limit.window)
      ? '1m'
      : (limit.window ?? '1m');
  return {
    algorithm,
    rate_per_second: rate ? (limit.rate_per_second === 0 ? newLimit.rate_per_second : limit.rate_per_second) : 0,
    rate_unit: limit.rate_unit,
    burst_capacity: listed ? Math.min(burst, 1000) : burst,
    window,
    window_zone: isCalendar(window) ? limit.window_zone : null,
    window_start_day: window === 'week' || window === 'month' ? limit.window_start_day : null,
    refill_interval: algorithm === 'token_bucket' ? limit.refill_interval : null,
    max_hold: algorithm === 'concurrency' ? (limit.max_hold ?? '10m') : null,
    notify_at: algorithm === 'fixed_window' ? limit.notify_at : [],
  };
}

const lengths: Record<RateUnit, string> = { second: '1s', minute: '1m', hour: '1h', day: '24h' };

/** Keeps the requests over time: 6 per minute are 6 in a window of a minute. */
export function converted(limit: LimitDraft, algorithm: Algorithm): LimitDraft {
  const next = { ...limit, algorithm };
  const { number, unit } = perUnit(limit);
  const length = windowSeconds(limit.window ?? '');
  if (hasRate(limit.algorithm) && hasWindow(algorithm) && Number.isInteger(number) && number > 0) {
    next.burst_capacity = number;
    next.window = lengths[unit];
  } else if (hasWindow(limit.algorithm) && hasRate(algorithm) && length > 0) {
    next.rate_per_second = limit.burst_capacity / length;
    next.rate_unit = unitOf(next.rate_per_second);
  }
  return fitted(next);
}

export const presets: { label: string; limit: (draft: LimitDraft) => LimitDraft }[] = [
  {
    label: 'Strict pacing (burst 1)',
    limit: (draft) => fitted({ ...draft, algorithm: 'token_bucket', burst_capacity: 1, refill_interval: null }),
  },
  {
    label: 'Burst credit (5 min of the rate)',
    limit: (draft) => {
      const limit = fitted({ ...draft, algorithm: 'token_bucket' });
      return { ...limit, burst_capacity: Math.max(1, Math.round(limit.rate_per_second * 300)) };
    },
  },
  {
    label: 'Quota per month',
    limit: (draft) =>
      fitted({
        ...draft,
        algorithm: 'fixed_window',
        window: 'month',
        window_start_day: null,
        burst_capacity: 10_000,
        notify_at: [80, 100],
      }),
  },
  {
    label: '20 at once',
    limit: (draft) => fitted({ ...draft, algorithm: 'concurrency', burst_capacity: 20, max_hold: '10m' }),
  },
];

/** The audit log leaves out fields that nobody chose. */
export function ruleOfImage(image: Record<string, unknown>): Rule {
  const standard = { ...noParameters, adapt: null, lease: 'auto', meter: 'requests', charge: 'before' };
  return { ...standard, ...image } as unknown as Rule;
}

export function isPlain({ algorithm, refill_interval }: Limit): boolean {
  return (algorithm ?? 'token_bucket') === 'token_bucket' && !refill_interval;
}
