import * as crypto from 'node:crypto';
import { readFileSync } from 'node:fs';
import { afterEach, expect, test, vi } from 'vitest';
import { recipe } from './recipe';

afterEach(() => vi.useRealTimers());

const isFromSluice = new Function(
  'createHmac',
  'timingSafeEqual',
  `${recipe.replace(/^import.*\n/, '')}return isFromSluice;`,
)(crypto.createHmac, crypto.timingSafeEqual) as (secret: string, signature: string, body: Buffer) => boolean;

// As internal/notify/webhook's tests receive it.
const t = 1795243200;
const signature = `t=${t},v1=c81f162066c7f5f89b21fdce410e07cad4d90907b0c5507a9135cb04b3a13d28`;
const body = Buffer.from('{}');

test('a webhook as it is sent passes the check that people are shown, and no other does', () => {
  vi.useFakeTimers({ now: (t + 10) * 1000 });
  expect(isFromSluice('hush', signature, body)).toBe(true);
  expect(isFromSluice('another', signature, body)).toBe(false);
  expect(isFromSluice('hush', signature, Buffer.from('{"a":1}'))).toBe(false);
  expect(isFromSluice('hush', signature.replace(`${t}`, `${t + 1}`), body)).toBe(false);
  expect(isFromSluice('hush', `t=${t}`, body)).toBe(false);
  vi.setSystemTime((t + 301) * 1000);
  expect(isFromSluice('hush', signature, body)).toBe(false);
});

test('the documentation shows the same check', () => {
  expect(readFileSync('../docs/violations.md', 'utf8')).toContain(recipe);
});
