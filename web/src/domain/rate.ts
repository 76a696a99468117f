/**
 * Rates as people say them. The API keeps tokens per second and the unit somebody typed; people see
 * "10 per second, bursts to 50" and never two bare floats. What is shown reads back as the very same
 * rate, by the same rule as the server's (internal/rules/rate.go).
 */
export const units = ['second', 'minute', 'hour', 'day'] as const;
export type RateUnit = (typeof units)[number];

export interface Rate {
  rate_per_second: number;
  rate_unit: RateUnit;
}

export interface Limit extends Rate {
  burst_capacity: number;
}

/** The ranges the server accepts (internal/rules). */
export const bounds = {
  minRate: 1e-6,
  maxRate: 1e9,
  maxBurst: 1e9,
  maxSecondsToFull: 365 * 86400,
};

const seconds: Record<RateUnit, number> = { second: 1, minute: 60, hour: 3600, day: 86400 };

/** Tokens per second of a number per unit. */
export function perSecond(perUnit: number, unit: RateUnit): number {
  return perUnit / seconds[unit];
}

/**
 * The shortest number that, divided by the unit, is exactly the rate; per second if there is none per
 * that unit.
 */
export function perUnit(rate: Rate): { number: number; unit: RateUnit } {
  const scaled = rate.rate_per_second * seconds[rate.rate_unit];
  for (let digits = 1; digits <= 17; digits++) {
    const number = Number(scaled.toPrecision(digits));
    if (number / seconds[rate.rate_unit] === rate.rate_per_second) return { number, unit: rate.rate_unit };
  }
  return { number: rate.rate_per_second, unit: 'second' };
}

/** The unit that says a rate in a whole number, for rates that come without the one somebody typed. */
export function unitOf(rate_per_second: number): RateUnit {
  const whole = (unit: RateUnit) => {
    const { number, unit: found } = perUnit({ rate_per_second, rate_unit: unit });
    return found === unit && Number.isInteger(number);
  };
  return units.find(whole) ?? 'second';
}

const exact = new Intl.NumberFormat('en', { maximumFractionDigits: 12 });

/** "1,000 per day" */
export function rateSentence(rate: Rate): string {
  const { number, unit } = perUnit(rate);
  return `${exact.format(number)} per ${unit}`;
}

/** "10 per second, bursts to 50" */
export function limitSentence(limit: Limit): string {
  return `${rateSentence(limit)}, bursts to ${exact.format(limit.burst_capacity)}`;
}

const short: Record<RateUnit, string> = { second: 's', minute: 'min', hour: 'h', day: 'd' };

/** "10/s": for cells and chips, beside the sentence. */
export function rateShort(rate: Rate): string {
  const { number, unit } = perUnit(rate);
  return `${exact.format(number)}/${short[unit]}`;
}

/**
 * Reads "1000/day", "10 per second", "5/min", "600 / m" or a bare number, which keeps the unit. Null if
 * it is none of them.
 */
export function parseRate(text: string, fallback: RateUnit): Rate | null {
  const found = /^\s*([\d,_ ]*\.?\d+)\s*(?:(?:\/|per)\s*([a-z]+))?\s*$/i.exec(text);
  if (!found?.[1]) return null;
  const unit = found[2] ? unitNamed(found[2].toLowerCase()) : fallback;
  const number = Number(found[1].replace(/[,_ ]/g, ''));
  if (!unit || !Number.isFinite(number)) return null;
  return { rate_per_second: perSecond(number, unit), rate_unit: unit };
}

function unitNamed(name: string): RateUnit | undefined {
  return units.find((unit) => unit.startsWith(name) || short[unit] === name || `${unit}s` === name);
}

/** What is wrong with a limit, in words that follow the field's name; the server has the last word. */
export function limitProblems(limit: Limit): { rate?: string; burst?: string } {
  const problems: { rate?: string; burst?: string } = {};
  const { rate_per_second: rate, burst_capacity: burst } = limit;
  if (!(rate >= bounds.minRate && rate <= bounds.maxRate)) {
    problems.rate = 'must be from 0.000001 to 1,000,000,000 per second';
  }
  if (!Number.isInteger(burst) || burst < 1 || burst > bounds.maxBurst) {
    problems.burst = 'must be a whole number from 1 to 1,000,000,000';
  } else if (!problems.rate && burst / rate > bounds.maxSecondsToFull) {
    const most = Math.floor(rate * bounds.maxSecondsToFull);
    problems.burst = `must be at most ${exact.format(most)} at this rate, so that a bucket fills within a year`;
  }
  return problems;
}

/** How long an empty bucket takes to be full, in milliseconds. */
export function timeToFull(limit: Limit): number {
  return (limit.burst_capacity / limit.rate_per_second) * 1000;
}
