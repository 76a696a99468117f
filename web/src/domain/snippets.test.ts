import { execFileSync } from 'node:child_process';
import { expect, test } from 'vitest';
import type { Check } from '~/api/types';
import { curlWith, type Language, languages, snippet } from './snippets';

const url = 'http://127.0.0.1:8080/';
const text = `it's "42" \`here\` $HOME \\ \n é 𝕏`;

const checks: Record<string, Check> = {
  plain: { user_id: '42', endpoint: '/api/reports' },
  every: {
    user_id: text,
    plan: 'pro',
    endpoint: '/api/reports',
    method: 'GET',
    ip: '203.0.113.9',
    cost: 2.5,
    attributes: { org: text, size: 'l' },
  },
};

const extensions = { go: 'go', python: 'py', typescript: 'ts' };

/** The clients' own tests run these files on a real server. `npx vitest run snippets -u` writes them. */
test.each(
  Object.keys(checks).flatMap((name) =>
    Object.entries(extensions).map(([language, extension]) => ({ name, language, extension })),
  ),
)('$name in $language is what the tests of that client run', async ({ name, language, extension }) => {
  const check = checks[name] ?? {};
  const folder = '../../../clients/testdata/snippets';
  await expect(`${JSON.stringify(check, null, 2)}\n`).toMatchFileSnapshot(`${folder}/${name}.json`);
  const code = snippet(language as Language, url, check);
  await expect(code).toMatchFileSnapshot(`${folder}/${name}.${extension}`);
});

test.each(languages)('$label takes the key from the environment, and can be left without a check', ({ value }) => {
  const code = snippet(value, url, {});
  expect(code).toContain('http://127.0.0.1:8080');
  expect(code).not.toContain('8080//');
  expect(code).toContain('SLUICE_KEY');
});

test('a look is a look in Go, where 0 is the default cost', () => {
  expect(snippet('go', url, { cost: 0 })).toContain('Look: true');
});

test('costs of other meters stand beside that of requests', () => {
  const check = { costs: { requests: 2, input_tokens: 1200, usd: 0.5 } };
  expect(snippet('go', url, check)).toMatch(
    /Cost: {2}2,\n\t\tCosts: map\[string\]float64\{"input_tokens": 1200, "usd": 0.5\},/,
  );
  expect(snippet('python', url, check)).toMatch(/cost=2,\n {4}costs=\{"input_tokens":1200,"usd":0.5\},/);
  expect(snippet('typescript', url, check)).toMatch(/cost: 2,\n {2}costs: \{"input_tokens":1200,"usd":0.5\},/);
});

test('whatever is typed reaches curl as it is', () => {
  const check = { ...checks.every, user_id: text.replace('\n', '') };
  const args = execFileSync('sh', ['-c', `curl() { printf '%s\\n' "$@"; }; ${curlWith('k', url, check)}`]);
  expect(JSON.parse(String(args).trim().split('\n').at(-1) ?? '')).toEqual(check);
});

test('a key stands in the line that is to be pasted', () => {
  expect(curlWith('slk_a_b', url, {})).toContain(`-H 'Authorization: Bearer slk_a_b'`);
});
