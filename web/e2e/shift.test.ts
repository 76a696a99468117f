import type { Locator, Page } from '@playwright/test';
import { headings } from '../src/headings';
import { expect, settled, signIn, test } from './browser';
import { furnish } from './overlays';
import { screens } from './screens';
import { demo } from './sluice';
import { ordinaryTraffic } from './traffic';

/** Answers come one by one, each after the one before is drawn, so that late ones are late in every run. */

test.use({ server: 'shift' });

const most = 0.1;

interface Shift {
  value: number;
  moved: string[];
}

async function watched(page: Page): Promise<void> {
  await page.addInitScript(() => {
    const shifts: Shift[] = [];
    Object.assign(window, { shifts });
    new PerformanceObserver((list) => {
      // biome-ignore lint/suspicious/noExplicitAny: TypeScript does not know these entries
      for (const { value, hadRecentInput, sources } of list.getEntries() as any[]) {
        if (hadRecentInput) continue;
        const moved = sources.map(
          // biome-ignore lint/suspicious/noExplicitAny: nor these
          ({ node, previousRect, currentRect }: any) =>
            `${(node?.outerHTML ?? node?.textContent ?? 'removed').slice(0, 120)} from ${previousRect.y} to ` +
            `${currentRect.y}`,
        );
        shifts.push({ value, moved });
      }
    }).observe({ type: 'layout-shift', buffered: true });
  });
}

async function oneByOne(page: Page): Promise<void> {
  let line: Promise<unknown> = Promise.resolve();
  await page.route('**/api/v1/**', (route) => {
    line = line
      .then(async () => {
        await route.fulfill({ response: await route.fetch() });
        await drawn(page);
      })
      .catch(() => {}); // the page went elsewhere
    return line;
  });
}

async function placeOf(text: Locator) {
  const { x, y } = (await text.boundingBox()) ?? {};
  const look = await text.evaluate((element) => {
    const { fontSize, lineHeight, fontWeight, letterSpacing, color } = getComputedStyle(element);
    return { fontSize, lineHeight, fontWeight, letterSpacing, color };
  });
  return { x, y, ...look };
}

function drawn(page: Page): Promise<void> {
  return page.evaluate(
    () => new Promise<void>((resolve) => requestAnimationFrame(() => requestAnimationFrame(() => resolve()))),
  );
}

for (const viewport of [
  { width: 1280, height: 800 },
  { width: 390, height: 844 },
]) {
  test.describe(`${viewport.width} wide`, () => {
    test.use({ viewport });
    test('the heading of a screen is there before the UI, and stays where it is', async ({ page, sluice }) => {
      await signIn(page);
      for (const [screen, heading] of Object.entries(headings)) {
        const { title } = heading;
        const hasLead = 'lead' in heading;
        let arrive = () => {};
        const arrival = new Promise<void>((resolve) => {
          arrive = resolve;
        });
        await page.route('**/assets/index-*.js', (route) => arrival.then(() => route.continue()));
        await page.goto(`${sluice.url}/t/${demo.tenant}/${screen}`, { waitUntil: 'commit' });
        const early = { title: page.locator('.starting-title'), lead: page.locator('.starting-lead') };
        await expect(early.title).toHaveText(title);
        const before = { title: await placeOf(early.title), lead: hasLead && (await placeOf(early.lead)) };
        arrive();
        const header = page.locator('main header').first();
        const late = { title: header.getByRole('heading', { level: 1 }), lead: header.locator('p') };
        await expect(late.title).toHaveText(title);
        const after = { title: await placeOf(late.title), lead: hasLead && (await placeOf(late.lead)) };
        expect(after, screen).toEqual(before);
        await settled(page);
        await page.unroute('**/assets/index-*.js');
      }
    });

    test('nothing moves while a screen loads', async ({ page, sluice }) => {
      test.setTimeout(600_000); // it opens every screen
      await ordinaryTraffic(sluice);
      await signIn(page);
      const made = await furnish(page);
      await watched(page);
      await oneByOne(page);
      for (const { name, path } of [...screens, ...made]) {
        await page.goto(path);
        await settled(page);
        await drawn(page);
        const shifts = await page.evaluate(() => (window as unknown as { shifts: Shift[] }).shifts);
        const sum = shifts.reduce((sum, { value }) => sum + value, 0);
        process.stdout.write(`${name}, ${viewport.width} wide: ${sum.toFixed(3)}\n`);
        if (process.env.SHIFTS && sum > 0.005) process.stdout.write(`${JSON.stringify(shifts, null, 1)}\n`);
        expect.soft(sum, `${name}\n${JSON.stringify(shifts, null, 2)}`).toBeLessThanOrEqual(most);
      }
    });
  });
}
