import type { Alert, AlertDelivery } from '~/api/types';
import type { Tone } from '~/components/Outcome';
import { exactNumber, plural } from '~/domain/format';

/** "1,000 denials by user:{user_id} of one subject within 5 minutes" */
export function conditionOf({ threshold, per, window_minutes }: Alert, pattern: string): string {
  const denials = `${exactNumber(threshold)} ${threshold === 1 ? 'denial' : 'denials'} by ${pattern}`;
  const whose = per === 'subject' ? ' of one subject' : '';
  return `${denials}${whose} within ${plural(window_minutes, 'minute')}`;
}

/** The outcome of a delivery. */
export function outcomeOf({ state, is_under_way }: AlertDelivery): { tone: Tone; word: string } {
  switch (state) {
    case 'delivered':
      return { tone: 'allowed', word: 'Delivered' };
    case 'failed':
      return { tone: 'denied', word: 'Failed' };
    default:
      return { tone: 'degraded', word: is_under_way ? 'Sending' : 'Pending' };
  }
}

/** "answered 503 after 3 attempts", "connection refused" */
export function detailOf({ attempts, last_status, last_error }: AlertDelivery): string {
  if (attempts === 0) return 'not sent yet';
  const tries = plural(attempts, 'attempt');
  if (last_error) return `${last_error} (${tries})`;
  return last_status ? `answered ${last_status} (${tries})` : tries;
}
