import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { chromium } from '@playwright/test';
import { expect, opened, settled, signIn, test } from './browser';
import { furnish, overlays } from './overlays';
import { screens } from './screens';
import { ordinaryTraffic } from './traffic';

/** The score of performance depends on the machine, so it is printed and fails nothing. */

const library = join(import.meta.dirname, '../lighthouse/node_modules');
const { SCREEN = '' } = process.env; // only the screens whose name begins with this
const least = 95;

interface Result {
  lhr: {
    categories: Record<string, { score: number | null; auditRefs: { id: string; weight: number }[] }>;
    audits: Record<string, { score: number | null; title: string; numericValue?: number }>;
  };
}

const isAsked = ({ name }: { name: string }) => name.startsWith(SCREEN);

test('what Lighthouse says of every screen', async ({ sluice, launchOptions }) => {
  test.setTimeout(7_200_000);
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
  const flags = { port, output: 'json', logLevel: 'error', onlyCategories: [...categories] };
  async function ask({ name, path }: { name: string; path: string }) {
    report(`${name}, desktop`, await lighthouse(sluice.url + path, flags, desktop));
    report(`${name}, mobile`, await lighthouse(sluice.url + path, flags));
  }

  for (const one of signedOut.filter(isAsked)) await ask(one);
  await signIn(page);
  const made = await furnish(page);
  for (const one of [...screens, ...made].filter(isAsked)) await ask(one);

  const inspector = await puppeteer.connect({
    browserURL: `http://127.0.0.1:${port}`,
    defaultViewport: null,
  });
  for (const { name, path, open } of overlays.filter(isAsked)) {
    await page.goto(path);
    await settled(page);
    await open(page);
    await opened(page);
    const [same] = await inspector.pages();
    const standing = { ...flags, onlyCategories: categories.slice(1) };
    report(`${name}, open`, await snapshot(same, { config: desktop, flags: standing }));
  }
  await inspector.disconnect();
  await context.close();
});

const signedOut = [
  { name: 'sign-in', path: '/sign-in' },
  { name: 'forgot-password', path: '/forgot-password' },
];

const categories = ['performance', 'accessibility', 'best-practices'] as const;

function report(name: string, { lhr }: Result): void {
  const scores = categories.map((id) => {
    const score = lhr.categories[id]?.score;
    return score === null || score === undefined ? '  –' : String(Math.round(score * 100)).padStart(3);
  });
  const ms = (id: string) => Math.round(lhr.audits[id]?.numericValue ?? 0);
  const times = lhr.audits['largest-contentful-paint']?.numericValue
    ? `FCP ${ms('first-contentful-paint')}, LCP ${ms('largest-contentful-paint')}, blocked ` +
      `${ms('total-blocking-time')} ms, ` +
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
  for (const id of categories.slice(1)) {
    expect.soft((lhr.categories[id]?.score ?? 1) * 100, `${name}: ${id}`).toBeGreaterThanOrEqual(least);
  }
}
