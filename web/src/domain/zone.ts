/** The zone of all times: the reader's own, or UTC. A choice reloads the page, so that no part keeps the other zone. */
export type Zone = 'local' | 'utc';

const key = 'sluice-times';

export const zone: Zone = localStorage.getItem(key) === 'utc' ? 'utc' : 'local';

export const timeZone = zone === 'utc' ? 'UTC' : undefined;

export function chooseZone(choice: Zone) {
  localStorage.setItem(key, choice);
  location.reload();
}

export function fieldText(at: number, of = zone): string {
  const offset = of === 'utc' ? 0 : new Date(at).getTimezoneOffset() * 60_000;
  return new Date(at - offset).toISOString().slice(0, 16).replace('T', ' ');
}

/** From midnight to midnight, which is 23 to 25 hours where clocks change. */
export function dayBefore(at: number, of = zone): { from: number; until: number } {
  const until = midnight(at, of);
  return { from: midnight(until - 12 * 3_600_000, of), until };
}

export function endOfDay(at: number, of = zone): number {
  return midnight(midnight(at, of) + 36 * 3_600_000, of); // a day has 23 to 25 hours
}

function midnight(at: number, of: Zone): number {
  return fieldMoment(fieldText(at, of).slice(0, 10), of) ?? Number.NaN;
}

const typedMoment = /^([12]\d{3})-(\d\d?)-(\d\d?)(?:[ T]+(\d\d?):(\d\d))?$/;

/** A date alone is its midnight; null for an empty text, NaN for any other. */
export function fieldMoment(text: string, of = zone): number | null {
  if (text.trim() === '') return null;
  const [, ...parts] = typedMoment.exec(text.trim()) ?? [];
  const [year = 0, month = 0, day = 0, hour = 0, minute = 0] = parts.map((part) => Number(part ?? 0));
  const written = new Date(Date.UTC(year, month - 1, day, hour, minute));
  const isTime = written.getUTCDate() === day && written.getUTCHours() === hour && written.getUTCMonth() === month - 1;
  if (parts.length === 0 || minute > 59 || !isTime) return Number.NaN;
  return of === 'utc' ? written.getTime() : new Date(year, month - 1, day, hour, minute).getTime();
}
