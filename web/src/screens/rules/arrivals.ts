import type { Simulation, Timeline } from '~/api/types';
import { hasRate, type Limit, timeToFull } from '~/domain/rate';

export interface Arrivals {
  sliceMs: number;
  counts: number[];
  most: number;
}

export const slices = 30;
/** More requests than this are bundled; the chart could not show them. */
const mostMarks = 3000;

const windows = [
  1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21_600, 43_200, 86_400, 604_800, 2_592_000, 31_536_000,
];

function rateOf(limit: Limit): number {
  return hasRate(limit.algorithm) ? limit.rate_per_second : (limit.burst_capacity / timeToFull(limit)) * 1000;
}

export function windowMs(limit: Limit): number {
  const wanted = (timeToFull(limit) / 1000) * 2.5;
  const single = 12 / rateOf(limit); // with a burst of one, a dozen refills
  const found = windows.find((seconds) => seconds >= Math.max(wanted, single)) ?? windows.at(-1);
  return (found as number) * 1000;
}

export type Shape = 'spike' | 'steady' | 'ramp';

export function shaped(shape: Shape, limit: Limit): Arrivals {
  const sliceMs = windowMs(limit) / slices;
  const rate = (rateOf(limit) * sliceMs) / 1000;
  const most = Math.max(4, Math.ceil(Math.max(rate * 4, limit.burst_capacity / 2)));
  const spike = rate * 1.2 + (limit.burst_capacity / 3) * 1.4;
  const wanted = (index: number) => {
    if (shape === 'steady') return rate * 1.25;
    if (shape === 'ramp') return (rate * 2 * index) / slices;
    return index >= 8 && index < 11 ? spike : rate * 0.6;
  };
  let carried = 0;
  const counts = Array.from({ length: slices }, (_, index) => {
    carried += wanted(index);
    const count = Math.min(most, Math.floor(carried));
    carried -= Math.floor(carried);
    return count;
  });
  return { sliceMs, counts, most };
}

export function bundle({ counts }: Arrivals): number {
  return Math.max(1, Math.ceil(counts.reduce((sum, count) => sum + count, 0) / mostMarks));
}

export function streamOf(arrivals: Arrivals): Simulation['arrivals'] {
  const each = bundle(arrivals);
  return arrivals.counts.flatMap((count, index) => {
    const marks = Math.ceil(count / each);
    return Array.from({ length: marks }, (_, mark) => ({
      at_ms: (index + mark / marks) * arrivals.sliceMs,
      cost: mark < marks - 1 ? each : count - each * (marks - 1),
    }));
  });
}

export function deniedBySlice(arrivals: Arrivals, { decisions }: Timeline): number[] {
  const denied = arrivals.counts.map(() => 0);
  for (const { at_ms, cost, allowed } of decisions) {
    const slice = Math.min(slices - 1, Math.floor(at_ms / arrivals.sliceMs + 1e-9));
    if (!allowed) denied[slice] = (denied[slice] ?? 0) + cost;
  }
  return denied;
}

export function pictureOf(limit: Limit, arrivals: Arrivals, { tiers, decisions }: Timeline) {
  const levels = tiers[0]?.levels ?? [];
  const end = arrivals.sliceMs * slices;
  const last = levels.at(-1);
  const points = levels.map(({ at_ms, tokens }) => ({ at: at_ms, tokens, denied: null as number | null }));
  if (last && last.at_ms < end && limit.rate_per_second === 0) {
    points.push({ at: end, tokens: last.tokens, denied: null }); // what comes back later is not known here
  } else if (last && last.at_ms < end) {
    const full = last.at_ms + ((limit.burst_capacity - last.tokens) / limit.rate_per_second) * 1000;
    if (full < end) points.push({ at: full, tokens: limit.burst_capacity, denied: null });
    const tokens = Math.min(limit.burst_capacity, last.tokens + ((end - last.at_ms) / 1000) * limit.rate_per_second);
    points.push({ at: end, tokens, denied: null });
  }
  const level = (at: number) => points.findLast((point) => point.at <= at)?.tokens ?? 0;
  const crosses = decisions
    .filter(({ allowed }) => !allowed)
    .map(({ at_ms }) => ({ at: at_ms, tokens: level(at_ms), denied: level(at_ms) }));
  const all = [...points, ...crosses].sort((a, b) => a.at - b.at);
  return {
    x: all.map(({ at }) => at / 1000),
    tokens: all.map(({ tokens }) => tokens),
    denied: all.map(({ denied }) => denied),
    burst: all.map(() => limit.burst_capacity),
  };
}
