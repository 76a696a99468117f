import { fieldMoment, fieldText } from '~/domain/zone';

/** The durations that an override can have. */
export const lengths = [
  { value: '1h', label: '1 hour', ms: 3_600_000 },
  { value: '1d', label: '1 day', ms: 86_400_000 },
  { value: '7d', label: '7 days', ms: 7 * 86_400_000 },
  { value: '30d', label: '30 days', ms: 30 * 86_400_000 },
  { value: '90d', label: '90 days', ms: 90 * 86_400_000 },
  { value: 'until', label: 'Until a date', ms: null },
  { value: 'never', label: 'No end', ms: null },
];

export interface Expiry {
  /** A value of lengths, or "same", which keeps the saved end. */
  length: string;
  /** The value of the datetime-local field, for "until". */
  until: string;
  /** The saved end, for "same": a datetime-local field would cut it to the minute. */
  saved?: string | null;
}

/** When an override ends: null for never, undefined while no future time is chosen. */
export function expiresAt({ length, until, saved = null }: Expiry, now: number): string | null | undefined {
  if (length === 'same') return saved;
  if (length === 'never') return null;
  const chosen = lengths.find(({ value }) => value === length);
  if (chosen?.ms) return new Date(now + chosen.ms).toISOString();
  const at = fieldMoment(until);
  return at > now ? new Date(at).toISOString() : undefined;
}

/** The expiry of a saved override, to edit it. */
export function expiryOf(expires_at: string | null): Expiry {
  return { length: 'same', until: expires_at ? fieldText(Date.parse(expires_at)) : '', saved: expires_at };
}
