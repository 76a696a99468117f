import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { type Browser, chromium, type Page } from 'playwright-core';
import { expect } from 'vitest';
import { demo, patience, type Sluice } from './sluice';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

const found = [
  '/usr/bin/chromium',
  '/usr/bin/chromium-browser',
  '/usr/bin/google-chrome',
  '/Applications/Chromium.app/Contents/MacOS/Chromium',
].find((path) => existsSync(path));

export function startBrowser(): Promise<Browser> {
  return chromium.launch({
    executablePath: found,
    timeout: 2 * patience, // the first start of a browser reads it from the disk
    args: [
      '--no-sandbox', // Chromium has none when root starts it
      '--disable-gpu',
      '--disable-quic',
      '--no-first-run',
      '--disable-background-networking',
      '--disable-component-update',
      '--disable-sync',
    ],
  });
}

export interface Look {
  width: number;
  height: number;
  scheme: 'light' | 'dark';
}

/** A fresh browser profile; whatever the console or the page complains about is in `complaints`. */
export async function newPage(browser: Browser, sluice: Sluice, look: Partial<Look> = {}) {
  const { width = 1280, height = 800, scheme = 'light' } = look;
  const context = await browser.newContext({
    baseURL: sluice.url,
    viewport: { width, height },
    colorScheme: scheme,
    reducedMotion: 'reduce',
    permissions: ['clipboard-read', 'clipboard-write'],
  });
  const page = await context.newPage();
  page.setDefaultTimeout(patience);
  const complaints: string[] = [];
  page.on('pageerror', (error) => complaints.push(String(error)));
  page.on('console', (message) => {
    // The network's own line about an answer that is an error, which a test may want.
    if (message.type() === 'error' && !message.text().startsWith('Failed to load resource')) {
      complaints.push(message.text());
    }
  });
  return { page, complaints, close: () => context.close() };
}

/** Signs in through the form, as a person does. */
export async function signIn(page: Page, email = demo.email, password = demo.password): Promise<void> {
  await page.goto('/sign-in');
  await page.getByLabel('E-mail').fill(email);
  await page.getByLabel('Password', { exact: true }).fill(password);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.waitForURL((url) => url.pathname !== '/sign-in');
}

/** Waits until the page is drawn and nothing on it is loading any more. */
export async function settled(page: Page): Promise<void> {
  await page.locator('main h1').first().waitFor();
  await page.waitForLoadState('networkidle');
  await page.waitForFunction(() => !document.querySelector('[role="status"][aria-label="Loading"]'));
}

/** Fails if axe finds something that WCAG 2.2 AA does not allow. */
export async function expectAccessible(page: Page): Promise<void> {
  await page.evaluate(axe);
  const violations = await page.evaluate(async () => {
    const tags = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];
    // biome-ignore lint/suspicious/noExplicitAny: axe put itself there
    const result = await (window as any).axe.run(document, { runOnly: tags });
    return result.violations.map((violation: { id: string; help: string; nodes: { html: string }[] }) => ({
      rule: violation.id,
      help: violation.help,
      where: violation.nodes.map(({ html }) => html.slice(0, 200)),
    }));
  });
  expect(violations, page.url()).toEqual([]);
}
