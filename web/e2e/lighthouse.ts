import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { chromium } from '@playwright/test';
import { signIn, test } from './browser';
import { screens } from './screens';
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
  const { default: lighthouse } = await load('lighthouse/core/index.js');
  const { default: desktop } = await load('lighthouse/core/config/desktop-config.js');
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
  await context.close();
});

const categories = ['performance', 'accessibility', 'best-practices'] as const;

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
