import { expect, test, vi } from 'vitest';
import { noteServerTime, serverNow } from './clock';

const hour = 3_600_000;

// Two readings of the browser's clock are of the same moment.
vi.useFakeTimers();

/** Notes a response of a server whose clock is ahead, and returns by how much it is then held to be. */
function noted(ahead: number, roundTrip = 40): number {
  const received = Date.now();
  noteServerTime(new Date(received - roundTrip / 2 + ahead).toUTCString(), received - roundTrip, received);
  return serverNow() - Date.now();
}

test('a browser with a right clock keeps it', () => {
  expect(noted(0)).toBe(0);
});

test('the clock of the server is known to a second, whichever is ahead', () => {
  expect(Math.abs(noted(2 * hour) - 2 * hour)).toBeLessThanOrEqual(1040);
  expect(Math.abs(noted(-3 * hour) + 3 * hour)).toBeLessThanOrEqual(1040);
});

test('a response without a date teaches nothing', () => {
  const before = noted(hour);
  noteServerTime(null, 0, 0);
  expect(Math.abs(serverNow() - Date.now() - before)).toBeLessThanOrEqual(5);
});
