import { endOfDay } from '~/domain/zone';

const hour = 3_600_000;
const day = 24 * hour;
const after = (ms: number) => (now: number) => now + ms;

export const lengths = [
  { value: '1h', label: '1 hour', end: after(hour) },
  { value: 'tonight', label: 'Until tonight', end: (now: number) => endOfDay(now) },
  { value: '1d', label: '1 day', end: after(day) },
  { value: '7d', label: '7 days', end: after(7 * day) },
  { value: '30d', label: '30 days', end: after(30 * day) },
  { value: '90d', label: '90 days', end: after(90 * day) },
  { value: 'until', label: 'Until a date', end: null },
  { value: 'never', label: 'No end', end: null },
];

export interface Expiry {
  /** A value of lengths, or "same", which keeps the saved end. */
  length: string;
  /** In milliseconds; see MomentField. */
  until: number | null;
  /** The saved end, for "same". */
  saved?: string | null;
}

/** When an override ends: null for never, undefined while no future time is chosen. */
export function expiresAt({ length, until, saved = null }: Expiry, now: number): string | null | undefined {
  if (length === 'same') return saved;
  if (length === 'never') return null;
  const chosen = lengths.find(({ value }) => value === length);
  if (chosen?.end) return new Date(chosen.end(now)).toISOString();
  return until !== null && until > now ? new Date(until).toISOString() : undefined;
}

export function expiryOf(expires_at: string | null): Expiry {
  return { length: 'same', until: expires_at ? Date.parse(expires_at) : null, saved: expires_at };
}

/** Another duration. "Until a date" begins with the end that was chosen before, or tonight. */
export function withLength(expiry: Expiry, length: string, now: number): Expiry {
  if (length !== 'until' || expiry.until !== null) return { ...expiry, length };
  const before = expiresAt(expiry, now);
  return { ...expiry, length, until: before ? Date.parse(before) : endOfDay(now) };
}
