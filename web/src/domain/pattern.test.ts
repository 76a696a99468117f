import { expect, test } from 'vitest';
import { patternInWords } from './pattern';

test.each([
  ['user:{user_id}', 'Each user'],
  ['user:42', 'User 42'],
  ['user:42:endpoint:/api/search', 'User 42 on /api/search'],
  ['user:{user_id}:endpoint:POST /v1/charges', 'Each user on POST /v1/charges'],
  ['endpoint:/api/*', 'Everything below /api/'],
  ['endpoint:{endpoint}', 'Each endpoint'],
  ['endpoint:/api/search', 'Requests to /api/search'],
  ['global', 'All requests'],
  ['ip:{ip}', 'Each IP address'],
  ['ip:203.0.113.9', 'Address 203.0.113.9'],
  ['ip:203.0.113.0/24', 'Network 203.0.113.0/24'],
  ['attr.org:{attr.org}', 'Each org'],
  ['user:{user_id}:attr.model:gpt-x', 'Each user with model gpt-x'],
  ['nonsense', 'nonsense'],
])('%s in words', (text, words) => {
  expect(patternInWords(text)).toBe(words);
});
