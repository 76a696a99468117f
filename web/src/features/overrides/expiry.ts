import { lengthOf } from '~/domain/lengths';
import { endOfDay } from '~/domain/zone';

export const ends = [
  { value: 'tonight', label: 'Until tonight' },
  { value: 'until', label: 'Until a date' },
  { value: 'never', label: 'No end' },
];

export interface Expiry {
  /** A value of lengths or ends, or "same", which keeps the saved end. */
  length: string;
  /** See MomentField. */
  until: number | null;
  saved?: string | null;
}

export function expiresAt({ length, until, saved = null }: Expiry, now: number): string | null | undefined {
  if (length === 'same') return saved;
  if (length === 'never') return null;
  if (length !== 'until')
    return new Date(length === 'tonight' ? endOfDay(now) : now + lengthOf(length).ms).toISOString();
  return until !== null && until > now ? new Date(until).toISOString() : undefined;
}

export function expiryOf(expires_at: string | null): Expiry {
  return { length: 'same', until: expires_at ? Date.parse(expires_at) : null, saved: expires_at };
}

/** "Until a date" begins with the end that was chosen before, or tonight. */
export function withLength(expiry: Expiry, length: string, now: number): Expiry {
  if (length !== 'until' || expiry.until !== null) return { ...expiry, length };
  const before = expiresAt(expiry, now);
  return { ...expiry, length, until: before ? Date.parse(before) : endOfDay(now) };
}
