import type { Page } from '@playwright/test';
import { expect, expectAccessible, settled, signIn, test } from './browser';
import { furnish, overlays } from './overlays';
import { screens } from './screens';
import { ordinaryTraffic } from './traffic';

test.use({ server: 'accessibility' });
test.beforeAll(({ sluice }) => ordinaryTraffic(sluice));

const looks = [
  { colorScheme: 'light', viewport: { width: 1280, height: 800 } },
  { colorScheme: 'dark', viewport: { width: 390, height: 800 } },
] as const;

async function dress(page: Page, { colorScheme, viewport } = looks[0] as (typeof looks)[number]): Promise<void> {
  await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
  await page.setViewportSize(viewport);
  await expect(page.locator(`html[data-mantine-color-scheme=${colorScheme}]`)).toBeVisible();
  await settled(page);
}

async function expectAccessibleInEveryLook(page: Page, path: string, act?: (page: Page) => Promise<void>) {
  await page.setViewportSize(looks[0].viewport);
  await page.goto(path);
  await dress(page);
  await act?.(page);
  const above = page.locator('[role="dialog"]:visible, [role="menu"]:visible');
  const open = await above.count();
  for (const look of looks) {
    await dress(page, look);
    await expect.poll(() => above.count()).toBeGreaterThanOrEqual(open);
    await expectAccessible(page);
  }
}

test('no screen has what WCAG 2.2 AA forbids, light or dark, and none complains in the console', async ({ page }) => {
  test.setTimeout(600_000); // it opens every screen
  await expectAccessibleInEveryLook(page, '/sign-in');
  await dress(page);
  await signIn(page);
  for (const { path } of screens) await expectAccessibleInEveryLook(page, path);
});

test('nothing that opens above a screen has what WCAG 2.2 AA forbids, light or dark', async ({ page }) => {
  test.setTimeout(600_000); // it opens everything
  await signIn(page);
  for (const { path } of await furnish(page)) await expectAccessibleInEveryLook(page, path);
  for (const { name, path, open } of overlays) {
    await test.step(name, () => expectAccessibleInEveryLook(page, path, open));
  }
});
