import { expect, test } from 'vitest';
import { rule } from '../../test/fake';
import { adaptOf, adaptSentence, adaptText, seenText } from './adapt';

const plain = (text: string) => text.replaceAll('\u00a0', ' ').replaceAll('\u202f', ' ');

const adapt = { backend: 'search', floor_percent: 20, p99_ms: 300, error_percent: 1 };

test('a limit without a rate does not adapt', () => {
  expect(adaptOf({ algorithm: 'leaky_bucket' }, adapt)).toBe(adapt);
  expect(adaptOf({ algorithm: 'fixed_window' }, adapt)).toBeNull();
});

test('how a rule adapts is said in words', () => {
  expect(plain(adaptText(null))).toBe('no');
  expect(plain(adaptText(adapt))).toBe('backend search, floor 20 %, p99 at most 300 ms, errors at most 1 %');
  expect(plain(adaptText({ ...adapt, p99_ms: null }))).toBe('backend search, floor 20 %, errors at most 1 %');
  expect(plain(adaptSentence(rule(), adapt))).toContain('down to 2 per second');
  expect(plain(adaptSentence(rule(), { ...adapt, backend: '' }))).toBe(
    'Name the backend, and give at least one target.',
  );
  expect(plain(adaptSentence(rule(), { ...adapt, p99_ms: null, error_percent: null }))).toContain(
    'at least one target',
  );
});

test('what was reported is said in words', () => {
  expect(plain(seenText({ seen: null }))).toBe('No reports in the last minute');
  expect(plain(seenText({ seen: { requests: 1200, errors: 3, p99_ms: 412.4 } }))).toBe(
    '1,200 requests in the last minute, 3 failed, p99 412 ms',
  );
  expect(plain(seenText({ seen: { requests: 5, errors: 0, p99_ms: null } }))).toBe(
    '5 requests in the last minute, 0 failed',
  );
});
