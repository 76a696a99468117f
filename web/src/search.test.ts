import { expect, test } from 'vitest';
import { between, parseRange, wholeSteps } from '~/domain/range';
import { confirmedSearch, parseSearch, rulesSearch, signInSearch, stringifySearch, violationsSearch } from './search';

test('a filter comes back from the address as it went in', () => {
  const search = { user: '12345678901234567890', endpoint: 'GET /a?b=c&d', live: true, rule: '12' };
  const back = violationsSearch(parseSearch(stringifySearch(search)));
  expect(back).toEqual(search);
});

test('what makes no sense is left out', () => {
  expect(violationsSearch({ rule: 'twelve', user: '', live: 'perhaps' })).toEqual({});
  expect(rulesSearch({ q: 7, other: 'x' })).toEqual({});
});

test('a way back leads to this site', () => {
  expect(confirmedSearch({ next: '/t/demo/rules?q=a%20b' })).toEqual({ next: '/t/demo/rules?q=a%20b' });
  for (const next of [
    'https://evil.example',
    '//evil.example',
    'javascript:alert(1)',
    '/\\evil.example',
    '/\t/evil.example',
    '/\n/evil.example',
  ]) {
    expect(confirmedSearch({ next })).toEqual({});
    expect(signInSearch({ next })).toEqual({});
  }
});

test('a between range reads back to the second', () => {
  const from = Date.parse('2026-11-21T06:00:00Z');
  expect(parseRange(between(from + 300, from + 60_400), 0)).toEqual({ from, until: from + 60_000 });
  expect(parseRange(between(from, from), 0)).toEqual({ from, until: from + 1000 });
  expect(parseRange('yesterday', 0)).toBeNull();
  expect(parseRange('2026-11-21T06:00:00Z~2026-11-20T06:00:00Z', 0)).toBeNull();
});

test('a drag over bars takes each bar that it touches as a whole, the last one too', () => {
  expect(wholeSteps(61, 119, 60)).toEqual([60, 120]);
  expect(wholeSteps(30, 120, 60)).toEqual([0, 180]);
});
