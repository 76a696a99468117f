import { expect, test } from 'vitest';
import { foldEqual, titleOf } from './security';

test('an event is named, with its count, and a kind of a later release by its own name', () => {
  expect(titleOf({ kind: 'signed_in', count: 1 })).toBe('Signed in');
  expect(titleOf({ kind: 'sign_in_failed', count: 12 })).toBe('Sign-in failed, 12 times');
  expect(titleOf({ kind: 'badge_shown', count: 1 })).toBe('Badge shown');
});

test('neighbours that read the same are one entry, from the first of them to the latest', () => {
  const event = (at: number, more: object = {}) => ({
    event_id: String(at),
    at: `2026-11-21T06:0${at}:00Z`,
    count: 1,
    kind: 'exported',
    succeeded: true,
    account_id: '7',
    who: 'ada@example.com',
    typed: '',
    key_id: '',
    tenant: 'demo',
    ip: '203.0.113.9',
    user_agent: 'curl/8.5.0',
    detail: 'GET /usage',
    request_id: '',
    ...more,
  });
  const events = [
    event(9),
    event(8, { count: 3, detail: 'GET /rules' }),
    event(7, { user_agent: 'Wget/1' }),
    event(6, { ip: null }),
    event(5, { tenant: 'acme' }),
    event(4),
    event(3, { kind: 'denied', succeeded: false }),
    event(2),
  ];
  const folded = foldEqual(events).map(({ event_id, count, since }) => [event_id, count, since.slice(14, 16)]);
  expect(folded).toEqual([
    ['9', 4, '08'],
    ['7', 1, '07'],
    ['6', 1, '06'],
    ['5', 1, '05'],
    ['4', 1, '04'],
    ['3', 1, '03'],
    ['2', 1, '02'],
  ]);
});
