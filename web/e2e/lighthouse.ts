import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { chromium, type Page } from '@playwright/test';
import { settled, signIn, test } from './browser';
import { screens } from './screens';
import { demo } from './sluice';
import { ordinaryTraffic } from './traffic';

/* What Lighthouse says of every screen: `make lighthouse` prints a table. Its scores depend on the machine. */

const library = join(import.meta.dirname, '../lighthouse/node_modules');
const { SCREEN = '' } = process.env; // only the screens whose name begins with this

interface Result {
  lhr: {
    categories: Record<string, { score: number | null; auditRefs: { id: string; weight: number }[] }>;
    audits: Record<string, { score: number | null; title: string; numericValue?: number }>;
  };
}

const main = screens.filter(({ name }) => name.startsWith(SCREEN));

test('what Lighthouse says of every screen', async ({ sluice, launchOptions }) => {
  test.setTimeout(3_600_000);
  // In a variable, because the types are not installed with the UI's.
  const load = (path: string) => import(pathToFileURL(join(library, path)).href);
  const { default: lighthouse, snapshot } = await load('lighthouse/core/index.js');
  const { default: desktop } = await load('lighthouse/core/config/desktop-config.js');
  const { default: puppeteer } = await load('puppeteer-core/lib/esm/puppeteer/puppeteer-core.js');
  const port = 20_000 + (process.pid % 20_000);
  await ordinaryTraffic(sluice);
  const context = await chromium.launchPersistentContext('', {
    executablePath: launchOptions.executablePath,
    args: [...(launchOptions.args ?? []), `--remote-debugging-port=${port}`],
    baseURL: sluice.url,
  });
  const page = context.pages()[0] ?? (await context.newPage());
  await signIn(page);
  const flags = { port, output: 'json', logLevel: 'error', onlyCategories: [...categories] };

  for (const { name, path } of main) {
    const url = sluice.url + path;
    report(`${name}, desktop`, await lighthouse(url, flags, desktop));
    report(`${name}, mobile`, await lighthouse(url, flags));
  }
  const others = await puppeteer.connect({ browserURL: `http://127.0.0.1:${port}`, defaultViewport: null });
  for (const { name, path, open } of opened) {
    if (!name.startsWith(SCREEN)) continue;
    await page.goto(path);
    await settled(page);
    await open(page);
    await page.getByRole('dialog').first().waitFor();
    const [same] = (await others.pages()).filter((one: { url: () => string }) => one.url() === page.url());
    report(name, await snapshot(same, { flags }));
  }
  await others.disconnect();
  await context.close();
});

const categories = ['performance', 'accessibility', 'best-practices'] as const;

/** What is looked at while it is open. */
const opened: { name: string; path: string; open: (page: Page) => Promise<unknown> }[] = [
  {
    name: 'palette',
    path: `/t/${demo.tenant}/overview`,
    open: (page) => page.keyboard.press('Control+K'),
  },
  {
    name: 'dialog of a new key',
    path: `/t/${demo.tenant}/settings/keys`,
    open: (page) => page.getByRole('button', { name: 'Create key' }).click(),
  },
  {
    name: 'dialog of a new rule',
    path: `/t/${demo.tenant}/plans`,
    open: (page) => page.getByRole('button', { name: 'Add rule' }).click(),
  },
  {
    name: 'panel of a violation',
    path: `/t/${demo.tenant}/violations`,
    open: (page) => page.getByRole('row').nth(1).click(),
  },
];

/** One line: the three scores, and what of the first is slow or what of the others fails. */
function report(name: string, { lhr }: Result): void {
  const scores = categories.map((id) => {
    const score = lhr.categories[id]?.score;
    return score === null || score === undefined ? '  –' : String(Math.round(score * 100)).padStart(3);
  });
  const ms = (id: string) => Math.round(lhr.audits[id]?.numericValue ?? 0);
  const times = lhr.audits['largest-contentful-paint']?.numericValue
    ? `FCP ${ms('first-contentful-paint')}, LCP ${ms('largest-contentful-paint')}, blocked ${ms('total-blocking-time')} ms, ` +
      `shift ${(lhr.audits['cumulative-layout-shift']?.numericValue ?? 0).toFixed(3)}`
    : '';
  const failed = categories
    .slice(1)
    .flatMap((id) =>
      (lhr.categories[id]?.auditRefs ?? [])
        .filter(({ id, weight }) => weight > 0 && (lhr.audits[id]?.score ?? 1) < 0.9)
        .map(({ id }) => id),
    );
  process.stdout.write(`${name.padEnd(36)} ${scores.join(' ')}  ${times} ${failed.join(', ')}\n`);
}
