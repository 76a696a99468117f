import type { SecurityEvent } from '~/api/types';
import { browserOf } from './browser';
import { upper } from './pattern';
import { choicesOf } from './rule';

/** Kinds of later releases are shown by their own name. */
const titles: Record<string, string> = {
  signed_in: 'Signed in',
  sign_in_failed: 'Sign-in failed',
  sign_in_too_soon: 'Sign-in refused: too many attempts',
  signed_out: 'Signed out',
  sessions_ended: 'Ended sessions',
  password_changed: 'Changed the password',
  password_failed: 'Wrong current password',
  identity_confirmed: 'Signed in again',
  second_factor_failed: 'Wrong code',
  second_factor_on: 'Turned the second factor on',
  second_factor_off: 'Turned the second factor off',
  recovery_codes_replaced: 'Made new recovery codes',
  reset_asked: 'Asked for a password reset',
  password_reset: 'Reset the password',
  identity_linked: 'Linked an account at a provider',
  identity_unlinked: 'Unlinked an account at a provider',
  invitation_accepted: 'Accepted an invitation',
  refused: 'Key or session refused',
  outside_network: 'Key used from outside its networks',
  denied: 'Permission denied',
  exported: 'Exported data',
  key_left_behind: 'Left a key that still works',
};

export const securityKinds = choicesOf(titles);

export const tenantSecurityKinds = securityKinds.filter(({ value }) =>
  ['refused', 'outside_network', 'denied', 'exported', 'key_left_behind'].includes(value),
);

export function titleOf({ kind, count }: Pick<SecurityEvent, 'kind' | 'count'>): string {
  const title = titles[kind] ?? upper(kind.replaceAll('_', ' '));
  return count > 1 ? `${title}, ${count} times` : title;
}

interface FoldedEvent extends SecurityEvent {
  since: string;
}

/** Folds neighbours that read the same; the latest event comes first. */
export function foldEqual(events: SecurityEvent[]): FoldedEvent[] {
  const folded: FoldedEvent[] = [];
  for (const event of events) {
    const later = folded.at(-1);
    if (later && readsAs(later) === readsAs(event)) {
      later.count += event.count;
      later.since = event.at;
    } else {
      folded.push({ ...event, since: event.at });
    }
  }
  return folded;
}

function readsAs(event: SecurityEvent): string {
  const { kind, tenant, ip, user_agent } = event;
  return JSON.stringify([kind, byWhom(event), tenant, ip, browserOf(user_agent)]);
}

/** "by a platform admin", of sessions that somebody else ended. */
export function byWhom({ kind, detail }: SecurityEvent): string {
  return kind === 'sessions_ended' ? detail : '';
}
