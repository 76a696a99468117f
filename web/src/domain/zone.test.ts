import { afterEach, expect, test, vi } from 'vitest';

afterEach(() => {
  localStorage.clear();
  vi.resetModules();
});

async function choose(choice: string | null) {
  vi.resetModules();
  if (choice) localStorage.setItem('sluice-times', choice);
  return { ...(await import('./zone')), ...(await import('./format')) };
}

const at = Date.parse('2026-07-21T06:33:00Z');

test('a reader who chose UTC reads and types UTC', async () => {
  const { exactTime, ownZone, fieldText, fieldMoment } = await choose('utc');
  expect(exactTime(at)).toBe('21 Jul 2026, 06:33:00 UTC');
  expect(ownZone(at)).toBe('UTC');
  expect(fieldText(at)).toBe('2026-07-21 06:33');
  expect(fieldMoment('2026-07-21 06:33')).toBe(at);
});

test.each([[null], ['local'], ['nonsense']])('by a choice of %s times are those of the browser', async (choice) => {
  const { zone, timeZone } = await choose(choice);
  expect(zone).toBe('local');
  expect(timeZone).toBeUndefined();
});

test.each(['local', 'utc'] as const)('what a %s field shows is what it means', async (choice) => {
  const { fieldText, fieldMoment } = await choose(choice);
  expect(fieldMoment(fieldText(at))).toBe(at);
  expect(fieldMoment(' ')).toBeNull();
});

test.each([
  ['2026-10-23T06:33:00Z', 'Fri 23 Oct 2026, 08:33 UTC+2 to Mon 26 Oct 2026, 07:33 UTC+1'],
  ['2026-10-25T06:33:00Z', 'Sun 25 Oct 2026, 07:33 to Mon 26 Oct 2026, 07:33 UTC+1'],
])('a span from %s names the offset of both ends only if summer time ends in between', async (from, words) => {
  vi.stubEnv('TZ', 'Europe/Berlin');
  await choose(null);
  const { whenWords } = await import('./scheduled');
  expect(whenWords({ starts_at: from, ends_at: '2026-10-26T06:33:00Z' })).toBe(words);
  vi.unstubAllEnvs();
});

test.each([
  ['2026-07-21T22:30:00Z', '2026-07-20T22:00:00Z', 24],
  ['2026-10-26T11:00:00Z', '2026-10-24T22:00:00Z', 25],
  ['2026-03-30T11:00:00Z', '2026-03-28T23:00:00Z', 23],
])('the day before %s in Berlin begins at %s and has %i hours', async (now, start, hours) => {
  const { dayBefore } = await choose(null);
  vi.stubEnv('TZ', 'Europe/Berlin');
  const { from, until } = dayBefore(Date.parse(now));
  expect(new Date(from).toISOString()).toBe(start.replace('Z', '.000Z'));
  expect((until - from) / 3_600_000).toBe(hours);
  expect(dayBefore(Date.parse(now), 'utc').until).toBe(Date.parse(`${now.slice(0, 10)}T00:00:00Z`));
  vi.unstubAllEnvs();
});

test.each([
  ['2026-07-21T21:59:00Z', '2026-07-21T22:00:00Z'],
  ['2026-07-21T22:00:00Z', '2026-07-22T22:00:00Z'],
  ['2026-10-24T22:30:00Z', '2026-10-25T23:00:00Z'], // of 25 hours
])('the day of %s in Berlin ends at %s', async (now, end) => {
  const { endOfDay } = await choose(null);
  vi.stubEnv('TZ', 'Europe/Berlin');
  expect(endOfDay(Date.parse(now))).toBe(Date.parse(end));
  expect(endOfDay(Date.parse(now), 'utc')).toBe(Date.parse(`${now.slice(0, 10)}T24:00:00Z`));
  vi.unstubAllEnvs();
});

test('a field in the zone of Berlin means Berlin', async () => {
  const { fieldText, fieldMoment } = await choose(null);
  vi.stubEnv('TZ', 'Europe/Berlin');
  expect(fieldText(at)).toBe('2026-07-21 08:33');
  expect(fieldMoment('2026-07-21 08:33')).toBe(at);
  vi.unstubAllEnvs();
});

test.each([
  ['2026-07-21 06:33', '2026-07-21T06:33:00Z'],
  ['2026-07-21T06:33', '2026-07-21T06:33:00Z'],
  [' 2026-7-1 6:33 ', '2026-07-01T06:33:00Z'],
  ['2026-07-21', '2026-07-21T00:00:00Z'],
  ['2024-02-29', '2024-02-29T00:00:00Z'],
])('“%s” is typed for %s', async (text, meant) => {
  const { fieldMoment } = await choose(null);
  expect(fieldMoment(text, 'utc')).toBe(Date.parse(meant));
});

test.each([
  '2026-02-29',
  '2026-13-01',
  '2026-07-00',
  '2026-07-21 24:00',
  '2026-07-21 06:60',
  '2026-07-21 6',
  '21 Jul 2026',
  '26-07-21',
  'x2026-07-21',
  '2026-07-21 06:33Z',
])('“%s” is no time', async (text) => {
  const { fieldMoment } = await choose(null);
  expect(fieldMoment(text, 'utc')).toBeNaN();
  expect(fieldMoment(text, 'local')).toBeNaN();
});
