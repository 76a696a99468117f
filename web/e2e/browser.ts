import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { type BrowserContext, test as base, expect, type Page } from '@playwright/test';
import { demo, type Sluice, startSluice } from './sluice';

export { expect };

interface Fixtures {
  complaints: string[];
  newProfile: () => Promise<Page>;
}

interface WorkerFixtures {
  /** Files that name another server than `shared` do not see what other files did to it. */
  server: string;
  sluice: Sluice;
}

/** A test with a `page` of its own and a `sluice` that it shares with the other files of its worker. */
export const test = base.extend<Fixtures, WorkerFixtures>({
  server: ['shared', { option: true, scope: 'worker' }],
  sluice: [
    // biome-ignore lint/correctness/noEmptyPattern: Playwright reads the pattern
    async ({}, use) => {
      const sluice = await startSluice();
      await use(sluice);
      await sluice.stop();
    },
    { scope: 'worker', timeout: 480_000 },
  ],
  baseURL: ({ sluice }, use) => use(sluice.url),
  // biome-ignore lint/correctness/noEmptyPattern: Playwright reads the pattern
  complaints: async ({}, use) => {
    const complaints: string[] = [];
    await use(complaints);
    expect(complaints).toEqual([]);
  },
  context: async ({ context, complaints }, use) => {
    watch(context, complaints);
    await use(context);
  },
  newProfile: ({ browser, complaints }, use) =>
    use(async () => {
      const context = await browser.newContext();
      watch(context, complaints);
      return context.newPage();
    }),
});

function watch(context: BrowserContext, complaints: string[]): void {
  context.on('weberror', (error) => complaints.push(String(error.error())));
  context.on('console', (message) => {
    // The network's own line about an answer that is an error, which a test may want.
    if (message.type() === 'error' && !message.text().startsWith('Failed to load resource')) {
      complaints.push(message.text());
    }
  });
}

export async function signIn(page: Page, email = demo.email, password = demo.password): Promise<void> {
  await page.goto('/sign-in');
  await page.getByLabel('E-mail').fill(email);
  await page.getByLabel('Password', { exact: true }).fill(password);
  await page.getByRole('button', { name: 'Sign in', exact: true }).click();
  await page.waitForURL((url) => !url.pathname.startsWith('/sign-in'));
}

export async function settled(page: Page): Promise<void> {
  await expect(page.locator('main h1').first()).toBeVisible();
  await page.waitForLoadState('networkidle');
  await expect(page.getByRole('status', { name: 'Loading' })).toHaveCount(0);
}

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** Waits until what opens has opened: half faded in, a text has too little contrast. */
export async function opened(page: Page): Promise<void> {
  await page.evaluate(async () => {
    const ending = document.getAnimations().filter(({ effect }) => effect?.getTiming().iterations !== Infinity);
    await Promise.allSettled(ending.map(({ finished }) => finished));
  });
}

/** Fails if axe finds something that WCAG 2.2 AA does not allow. */
export async function expectAccessible(page: Page): Promise<void> {
  await opened(page);
  if (!(await page.evaluate('"axe" in window'))) await page.evaluate(axe);
  const violations = await page.evaluate(async () => {
    const tags = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];
    // biome-ignore lint/suspicious/noExplicitAny: axe put itself there
    const result = await (window as any).axe.run(document, { runOnly: tags, resultTypes: ['violations'] });
    return result.violations.map((violation: { id: string; help: string; nodes: { html: string }[] }) => ({
      rule: violation.id,
      help: violation.help,
      where: violation.nodes.map(({ html }) => html.slice(0, 200)),
    }));
  });
  expect(violations, page.url()).toEqual([]);
}
