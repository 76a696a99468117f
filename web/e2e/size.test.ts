import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { expect, test } from '@playwright/test';

const dist = join(import.meta.dirname, '../dist');

interface Chunk {
  file: string;
  imports?: string[];
}

/** The chunks that a chunk cannot run without. */
function needed(manifest: Record<string, Chunk>, name: string, seen = new Set<string>()): Set<string> {
  const chunk = manifest[name];
  if (!chunk || seen.has(chunk.file)) return seen;
  seen.add(chunk.file);
  for (const one of chunk.imports ?? []) needed(manifest, one, seen);
  return seen;
}

test('the first load is under 250 kB of gzipped JavaScript, and charts are no part of it', () => {
  const manifest = JSON.parse(readFileSync(join(dist, '.vite/manifest.json'), 'utf8')) as Record<
    string,
    Chunk
  >;
  // What a visitor of the overview, the first screen, waits for.
  const files = needed(manifest, 'index.html');
  needed(manifest, 'src/screens/overview/Overview.tsx', files);
  const scripts = [...files].filter((file) => file.endsWith('.js'));
  const sent = scripts.map((file) => readFileSync(join(dist, `${file}.gz`)));
  const bytes = sent.reduce((sum, file) => sum + file.length, 0);
  expect(scripts.length).toBeGreaterThan(1);
  expect(bytes).toBeLessThan(250_000);
  expect(sent.some((file) => gunzipSync(file).includes('u-legend'))).toBe(false);
});
