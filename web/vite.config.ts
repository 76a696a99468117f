import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import react from '@vitejs/plugin-react';
import type { Plugin } from 'vite';
import { defineConfig } from 'vitest/config';

/** Writes x.js.gz in place of x.js: the server compresses nothing while somebody waits, and the program is smaller. */
function gzip(): Plugin {
  return {
    name: 'gzip',
    apply: 'build',
    writeBundle({ dir = 'dist' }) {
      for (const name of readdirSync(dir, { recursive: true, encoding: 'utf8' })) {
        if (/\.(js|css|svg)$/.test(name)) {
          const file = join(dir, name);
          writeFileSync(`${file}.gz`, gzipSync(readFileSync(file), { level: 9 }));
          rmSync(file);
        }
      }
    },
  };
}

export default defineConfig({
  plugins: [react(), gzip()],
  resolve: { alias: { '~': join(import.meta.dirname, 'src') } },
  build: {
    assetsInlineLimit: 0, // the content security policy allows no data: but images
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 900, // the API reference
    rolldownOptions: { input: ['index.html', 'reference.html'] },
    manifest: true, // what the first load is made of; e2e/size.test.ts reads it
  },
  // `npm run dev` beside `make run`: edits appear at once, on its API and its cookie.
  // Screens show files of ../deploy/examples.
  server: {
    proxy: { '/api': process.env.SLUICE_ADMIN_URL ?? 'http://127.0.0.1:8081' },
    fs: { allow: ['..'] },
  },
  test: {
    environment: 'jsdom',
    include: ['src/**/*.test.{ts,tsx}'],
    setupFiles: ['test/setup.ts'],
    restoreMocks: true,
    // The machine may have other things to do; a hang still ends.
    testTimeout: 300_000,
    hookTimeout: 60_000,
  },
});
