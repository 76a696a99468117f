import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { expectAccessible, newPage, settled, signIn, startBrowser } from './browser';
import { screens } from './screens';
import { type Sluice, startSluice } from './sluice';
import { ordinaryTraffic } from './traffic';

let sluice: Sluice;
let browser: Browser;
beforeAll(async () => {
  [sluice, browser] = await Promise.all([startSluice(), startBrowser()]);
  await ordinaryTraffic(sluice);
});
afterAll(async () => {
  await browser?.close();
  await sluice?.stop();
});

describe.each([
  { scheme: 'light' as const, width: 1280 },
  { scheme: 'dark' as const, width: 390 },
])('$scheme, $width wide', (look) => {
  test('no screen has what WCAG 2.2 AA forbids, and none complains in the console', async () => {
    const { page, complaints, close } = await newPage(browser, sluice, look);
    await page.goto('/sign-in');
    await settled(page);
    await expectAccessible(page);
    await signIn(page);
    for (const { path } of screens) {
      await page.goto(path);
      await settled(page);
      await expectAccessible(page);
    }
    expect(complaints).toEqual([]);
    await close();
  });
});
