import type { Alert, AlertDelivery, NewAlert } from '~/api/types';
import type { Tone } from '~/components/Outcome';
import { exactNumber, plural } from '~/domain/format';

export type Kind = Alert['kind'];

export const kindNames = {
  denials: 'Denials',
  near_limit: 'Share of checks near the limit',
  crossings: 'Quota thresholds',
  degraded: 'Degraded decisions',
} as const satisfies Record<Kind, string>;

export const kindHints = {
  denials: 'For a shadow rule, counts what it would have denied',
  near_limit: 'Percent of a rule’s checks that it denied, or that left less than a fifth of its limit',
  crossings: 'Of the shares at which a fixed window notifies, such as 80 % and 100 %',
  degraded: 'Checks that were decided without the shared buckets, by their failure mode',
} as const satisfies Record<Kind, string>;

export const hasSubjects = (kind: Kind) => kind === 'denials' || kind === 'crossings';

export function countedText(kind: Kind, count: number): string {
  if (kind === 'near_limit') return `${count} %`;
  const noun = { denials: 'denial', crossings: 'crossing', degraded: 'degraded decision' }[kind];
  return `${exactNumber(count)} ${count === 1 ? noun : `${noun}s`}`;
}

type Condition = Pick<NewAlert, 'per' | 'threshold' | 'window_minutes'> & { kind: Kind };

export function conditionOf({ kind, threshold, per, window_minutes }: Condition, of?: string): string {
  const rule = of ?? 'any rule';
  const whose = per === 'subject' ? ' of one subject' : '';
  const within = `within ${plural(window_minutes, 'minute')}`;
  const count = countedText(kind, threshold);
  switch (kind) {
    case 'near_limit':
      return `${count} of the checks of ${rule} denied or near its limit ${within}`;
    case 'degraded':
      return `${count}${of ? ` of ${of}` : ''} ${within}`;
    default:
      return `${count} by ${rule}${whose} ${within}`;
  }
}

export function silenceOf({ silence }: Alert, now: number): Alert['silence'] {
  return silence && Date.parse(silence.until) > now ? silence : null;
}

export function outcomeOf({ state, is_under_way }: AlertDelivery): { tone: Tone; word: string } {
  switch (state) {
    case 'delivered':
      return { tone: 'allowed', word: 'Delivered' };
    case 'failed':
      return { tone: 'denied', word: 'Failed' };
    case 'silenced':
      return { tone: 'neutral', word: 'Silenced' };
    default:
      return { tone: 'degraded', word: is_under_way ? 'Sending' : 'Pending' };
  }
}

export function detailOf({ state, attempts, last_status, last_error }: AlertDelivery): string {
  if (state === 'silenced') return 'not sent';
  if (attempts === 0) return 'not sent yet';
  const tries = plural(attempts, 'attempt');
  if (last_error) return `${last_error} (${tries})`;
  return last_status ? `answered ${last_status} (${tries})` : tries;
}
