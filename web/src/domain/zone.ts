/**
 * The zone in which times are shown and typed: the reader's own, or UTC, which logs of servers use. Each browser keeps
 * its choice. A choice reloads the page, so that no part of it shows times of the other zone.
 */
export type Zone = 'local' | 'utc';

const key = 'sluice-times';

export const zone: Zone = localStorage.getItem(key) === 'utc' ? 'utc' : 'local';

/** For Intl; undefined is the reader's own. */
export const timeZone = zone === 'utc' ? 'UTC' : undefined;

export function chooseZone(choice: Zone) {
  localStorage.setItem(key, choice);
  location.reload();
}

/** A moment as a datetime-local field has it, to the minute: "2026-11-23T08:41". */
export function fieldText(at: number, of = zone): string {
  const offset = of === 'utc' ? 0 : new Date(at).getTimezoneOffset() * 60_000;
  return new Date(at - offset).toISOString().slice(0, 16);
}

/** The day before that of a moment, from midnight to midnight. Days are of 23 to 25 hours where clocks change. */
export function dayBefore(at: number, of = zone): { from: number; until: number } {
  const until = midnight(at, of);
  return { from: midnight(until - 12 * 3_600_000, of), until };
}

export function endOfDay(at: number, of = zone): number {
  return midnight(midnight(at, of) + 36 * 3_600_000, of); // a day has 23 to 25 hours
}

function midnight(at: number, of: Zone): number {
  return fieldMoment(`${fieldText(at, of).slice(0, 10)}T00:00`, of);
}

/** The moment that a datetime-local field names; NaN for an empty one. */
export function fieldMoment(text: string, of = zone): number {
  return Date.parse(of === 'utc' && text !== '' ? `${text}Z` : text);
}
