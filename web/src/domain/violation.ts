import type { Violation } from '~/api/types';
import { duration, exactNumber, plural } from './format';
import { exactAmount, meterUnit } from './meter';
import { upper } from './pattern';
import { hasWindow } from './rate';
import { ruleTitle } from './rule';

/** The latest first: by the microseconds at the start of an id, then by its number. */
export function laterFirst(a: Violation, b: Violation): number {
  const [at = 0, number = 0] = a.violation_id.split('-').map(Number);
  const [otherAt = 0, otherNumber = 0] = b.violation_id.split('-').map(Number);
  return otherAt - at || otherNumber - number;
}

export function who(violation: Violation): string {
  if (violation.user_id !== null) return `User ${violation.user_id}`;
  return violation.ip_address ?? 'An anonymous caller';
}

export function endpointOf({ method, endpoint }: Violation): string | null {
  if (endpoint === null) return method;
  return method ? `${method} ${endpoint}` : endpoint;
}

/** "User 42 on free was denied 11 times within 790 ms on GET /api/search. …" */
export function whatHappened(violation: Violation): string {
  const plan = violation.plan ? ` on ${violation.plan}` : '';
  const asked = endpointOf(violation);
  const where = asked ? ` on ${asked}` : '';
  return `${who(violation)}${plan} ${was(violation)}${where}. ${why(violation)}${shadow(violation)}`;
}

function named(violation: Violation): string {
  return `“${ruleTitle({ ...violation, name: '' })}”`;
}

function was({ mode, reason, count, requested_at, last_at }: Violation): string {
  const participle = reason === 'blocked' ? 'blocked' : 'denied';
  const verb = mode === 'shadow' ? `would have been ${participle}` : `was ${participle}`;
  if (count === 1) return verb;
  const took = Date.parse(last_at) - Date.parse(requested_at);
  return `${verb} ${exactNumber(count)} times${took > 0 ? ` within ${duration(took)}` : ''}`;
}

function why(violation: Violation): string {
  const { reason, cost, burst_capacity } = violation;
  switch (reason) {
    case 'blocked':
      return `The rule ${named(violation)} blocks every request that matches. Waiting would not have helped.`;
    case 'cost_exceeds_limit':
      return hasWindow(violation.algorithm)
        ? `A request took ${tokens(cost, violation)}, and ${named(violation)} never allows more than ` +
            `${exactNumber(burst_capacity)} in one window. Waiting would not have helped.`
        : `A request took ${tokens(cost, violation)}, and ${bucket(violation)} never holds more than ${exactNumber(
            burst_capacity,
          )}. Waiting would not have helped.`;
    case 'concurrency_exceeded':
      return (
        `All ${plural(burst_capacity, 'place')} of ${named(violation)}${inBrackets(violation)} were taken. ` +
        'A request gets a place as soon as one is released.'
      );
    case 'reservations_exhausted':
      return 'The tenant had 100,000 open reservations, which is the most. Settle reservations, or let them expire.';
    case 'store_unavailable':
      return `Redis did not answer, and the rule ${named(violation)} denies until it does.`;
    default:
      return short(violation);
  }
}

function inBrackets({ limit_text }: Violation): string {
  return limit_text && ` (${limit_text})`;
}

function short(violation: Violation): string {
  const { tokens_at_time: held, cost, retry_after_ms: wait, algorithm } = violation;
  const later = wait === null ? '.' : `. It would have been allowed ${duration(wait)} later.`;
  if (hasWindow(algorithm)) {
    const left = !held ? 'nothing was left' : `${exactAmount(Math.round(held * 100) / 100, violation.meter)} was left`;
    // A rule that charges after the request also denies checks that cost nothing.
    const takes = cost > 0 ? `, and a request takes ${exactAmount(cost, violation.meter)}` : '';
    return `Of the limit ${named(violation)}${inBrackets(violation)} ${left}${takes}${later}`;
  }
  if (algorithm === 'leaky_bucket') return `${queue(violation)}${later}`;
  const begin = upper(bucket(violation)) + inBrackets(violation);
  const lacked =
    held === null ? 'was empty' : `held ${tokens(held, violation)} and a request takes ${exactNumber(cost)}`;
  return `${begin} ${lacked}${later}`;
}

/** The queue was full, or the caller, a proxy, cannot wait. */
function queue(violation: Violation): string {
  const { tokens_at_time: held, cost, queue_ms } = violation;
  const begin = `The queue of ${named(violation)}${inBrackets(violation)}`;
  if (queue_ms === null) return `${begin} was full`;
  if (held !== null && held >= cost)
    return `${begin} would have delayed the request by ${duration(queue_ms)}, and its proxy cannot wait`;
  return `${begin} was full, with a delay of ${duration(queue_ms)}`;
}

function bucket(violation: Violation): string {
  switch (violation.scope) {
    case 'user':
      return `their bucket for ${named(violation)}`;
    case 'global':
      return 'the bucket that all requests share';
    default:
      return `the bucket for ${named(violation)}`;
  }
}

function tokens(count: number, { meter }: Violation): string {
  return meterUnit(meter) ? exactAmount(count, meter) : plural(Math.round(count * 100) / 100, 'token');
}

function shadow({ mode }: Violation): string {
  return mode === 'shadow' ? ' Nothing was denied: the rule is in shadow mode.' : '';
}
