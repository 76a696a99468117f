import { join } from 'node:path';
import { defineConfig } from 'vitest/config';

/* Browser tests: the real binary, the real Chromium. They share the machine, so they run one after another. */
export default defineConfig({
  resolve: { alias: { '~': join(import.meta.dirname, 'src') } },
  test: {
    include: [process.env.SCREENSHOTS ? 'e2e/screenshots.ts' : 'e2e/**/*.test.ts'],
    environment: 'node',
    fileParallelism: false,
    // The machine may have other things to do; each wait ends by itself and says what it waited for.
    testTimeout: 600_000,
    hookTimeout: 300_000,
  },
});
