import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, test } from 'vitest';
import { newPage, settled, signIn, startBrowser } from './browser';
import { screens } from './screens';
import { type Sluice, startSluice } from './sluice';
import { ordinaryTraffic } from './traffic';

/* Pictures prove nothing by themselves: `make screenshots` draws them for people to look at. */
const folder = join(import.meta.dirname, '../screenshots');
const widths = [
  { width: 1440, height: 900 },
  { width: 390, height: 844 },
];

let sluice: Sluice;
let browser: Browser;
beforeAll(async () => {
  await mkdir(folder, { recursive: true });
  [sluice, browser] = await Promise.all([startSluice(), startBrowser()]);
  await ordinaryTraffic(sluice);
});
afterAll(async () => {
  await browser?.close();
  await sluice?.stop();
});

for (const scheme of ['light', 'dark'] as const) {
  for (const size of widths) {
    test(`${scheme}, ${size.width} wide`, async () => {
      const { page, close } = await newPage(browser, sluice, { ...size, scheme });
      const shoot = async (name: string) => {
        await settled(page);
        await page.screenshot({ path: join(folder, `${name}-${scheme}-${size.width}.png`) });
      };
      await page.goto('/sign-in');
      await shoot('sign-in');
      await signIn(page);
      for (const { name, path } of screens) {
        await page.goto(path);
        await shoot(name);
      }
      await close();
    });
  }
}
