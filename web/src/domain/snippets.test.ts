import { execFileSync } from 'node:child_process';
import { describe, expect, test } from 'vitest';
import { curlWith, languages, snippet } from './snippets';

const url = 'http://127.0.0.1:8080/';
const nasty = { user_id: `it's "42" \`here\` $HOME \\ é 𝕏`, endpoint: '/api/search', cost: 0.5 };

test.each(languages)(
  '$label sends the check to the endpoint, with the key of the environment',
  ({ value }) => {
    const code = snippet(value, url, { user_id: '42' });
    expect(code).toContain('http://127.0.0.1:8080/v1/check');
    expect(code).toContain('SLUICE_KEY');
    expect(code).toContain('user_id');
  },
);

describe('whatever is typed reaches the server as it is', () => {
  test('through a shell', () => {
    // The shell itself says what curl would be given.
    const args = execFileSync('sh', ['-c', `curl() { printf '%s\\n' "$@"; }; ${curlWith('k', url, nasty)}`]);
    expect(JSON.parse(String(args).trim().split('\n').at(-1) ?? '')).toEqual(nasty);
  });

  test('through JavaScript', async () => {
    const sent: { body: string }[] = [];
    const code = snippet('javascript', url, nasty);
    const run = new Function('fetch', 'process', 'console', `return (async () => {${code}})()`);
    const fetch = async (_: string, request: { body: string }) => {
      sent.push(request);
      return { status: 200 };
    };
    await run(fetch, { env: { SLUICE_KEY: 'k' } }, { log: () => undefined });
    expect(JSON.parse(sent[0]?.body ?? '')).toEqual(nasty);
  });

  test('through Go, where a backtick cannot stand in a raw string', () => {
    const literal = /NewReader\((.*)\)\n/.exec(snippet('go', url, nasty))?.[1] ?? '';
    expect(JSON.parse(JSON.parse(literal))).toEqual(nasty);
    expect(snippet('go', url, { user_id: '42' })).toContain('`{"user_id":"42"}`');
  });
});

test('a key stands in the line that is to be pasted', () => {
  expect(curlWith('slk_a_b', url, {})).toContain(`-H 'Authorization: Bearer slk_a_b'`);
});
