/** How long an override may last, as people choose it. */
export const lengths = [
  { value: '1h', label: 'for one hour', ms: 3_600_000 },
  { value: '1d', label: 'for one day', ms: 86_400_000 },
  { value: '7d', label: 'for one week', ms: 7 * 86_400_000 },
  { value: '30d', label: 'for 30 days', ms: 30 * 86_400_000 },
  { value: '90d', label: 'for 90 days', ms: 90 * 86_400_000 },
  { value: 'until', label: 'until …', ms: null },
  { value: 'never', label: 'until somebody ends it', ms: null },
];

export interface Expiry {
  /** A value of lengths, or "same": the end that is saved stays. */
  length: string;
  /** What a datetime-local field holds, of "until". */
  until: string;
  /** The end that is saved, of "same"; a datetime-local field would cut it to the minute. */
  saved?: string | null;
}

/** When an override ends: null for never, undefined while no moment to come is chosen. */
export function expiresAt({ length, until, saved = null }: Expiry, now: number): string | null | undefined {
  if (length === 'same') return saved;
  if (length === 'never') return null;
  const chosen = lengths.find(({ value }) => value === length);
  if (chosen?.ms) return new Date(now + chosen.ms).toISOString();
  const at = new Date(until);
  return Number.isNaN(at.getTime()) || at.getTime() <= now ? undefined : at.toISOString();
}

/** The expiry that an override has, to be edited. */
export function expiryOf(expires_at: string | null): Expiry {
  return { length: 'same', until: expires_at ? localText(new Date(expires_at)) : '', saved: expires_at };
}

/** A moment as a datetime-local field writes it: where the reader is, to the minute. */
function localText(at: Date): string {
  return new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}
