import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { patternInWords } from './pattern';

const file = join(import.meta.dirname, '../../../internal/rules/testdata/pattern-words.json');
const words: Record<string, string> = JSON.parse(readFileSync(file, 'utf8'));

test.each([...Object.entries(words), ['nonsense', 'nonsense']])('%s in words', (text, expected) => {
  expect(patternInWords(text)).toBe(expected);
});
