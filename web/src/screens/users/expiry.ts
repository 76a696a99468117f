/** How long a raise may last, as people choose it; '' is until a moment of their own, null never ends. */
export const lengths = [
  { value: '1h', label: 'for one hour', ms: 3_600_000 },
  { value: '1d', label: 'for one day', ms: 86_400_000 },
  { value: '7d', label: 'for one week', ms: 7 * 86_400_000 },
  { value: '30d', label: 'for 30 days', ms: 30 * 86_400_000 },
  { value: 'until', label: 'until …', ms: null },
  { value: 'never', label: 'until somebody ends it', ms: null },
];

export interface Expiry {
  length: string;
  /** What a datetime-local field holds, of "until". */
  until: string;
}

/** When a raise ends: a moment, null for never, undefined while none is chosen. */
export function expiresAt({ length, until }: Expiry, now: number): Date | null | undefined {
  if (length === 'never') return null;
  const chosen = lengths.find(({ value }) => value === length);
  if (chosen?.ms) return new Date(now + chosen.ms);
  const at = new Date(until);
  return Number.isNaN(at.getTime()) || at.getTime() <= now ? undefined : at;
}

/** The expiry that an override has, to be edited. */
export function expiryOf(expires_at: string | null): Expiry {
  if (expires_at === null) return { length: 'never', until: '' };
  return { length: 'until', until: localText(new Date(expires_at)) };
}

/** A moment as a datetime-local field writes it: where the reader is, to the minute. */
function localText(at: Date): string {
  return new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}
