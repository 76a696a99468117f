import { existsSync } from 'node:fs';
import { defineConfig } from '@playwright/test';

// The headless shell draws with less work than the whole browser.
const chromium = [
  '/usr/bin/chromium-headless-shell',
  '/usr/bin/chromium',
  '/usr/bin/chromium-browser',
  '/usr/bin/google-chrome',
  '/Applications/Chromium.app/Contents/MacOS/Chromium',
].find((path) => existsSync(path));

/* Browser tests: the built .bin/sluice in a real Chromium. */
export default defineConfig({
  testDir: 'e2e',
  testMatch: process.env.SCREENSHOTS ? 'screenshots.ts' : process.env.LIGHTHOUSE ? 'lighthouse.ts' : '*.test.ts',
  outputDir: 'test-results',
  workers: 2, // each has a sluice with a Postgres and a Redis, and a Chromium
  forbidOnly: true,
  reporter: process.env.CI ? 'dot' : 'list',
  // The machine may have other things to do; a hang still ends.
  timeout: 300_000,
  expect: { timeout: 60_000 },
  use: {
    actionTimeout: 60_000,
    navigationTimeout: 60_000,
    viewport: { width: 1280, height: 800 },
    colorScheme: 'light',
    contextOptions: { reducedMotion: 'reduce' },
    permissions: ['clipboard-read', 'clipboard-write'],
    launchOptions: {
      executablePath: chromium,
      args: [
        '--no-sandbox', // Chromium has none when root starts it
        '--disable-gpu',
        '--disable-quic',
        '--no-first-run',
        '--disable-background-networking',
        '--disable-component-update',
        '--disable-sync',
      ],
    },
  },
});
