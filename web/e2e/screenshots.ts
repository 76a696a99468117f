import type { Page } from '@playwright/test';
import { settled, signIn, test } from './browser';
import { screens } from './screens';
import { ordinaryTraffic } from './traffic';

const wordsOf = (page: Page) =>
  page
    .locator('main')
    .evaluate((main) => (main as HTMLElement).innerText.split(/\s+/).filter((word) => /\p{L}/u.test(word)).length);

/* Pictures prove nothing by themselves: `make screenshots` draws them for people to look at. */
const sizes = [
  { width: 1440, height: 900 },
  { width: 390, height: 844 },
];

test.beforeAll(({ sluice }) => ordinaryTraffic(sluice));

for (const colorScheme of ['light', 'dark'] as const) {
  for (const viewport of sizes) {
    test.describe(`${colorScheme}, ${viewport.width} wide`, () => {
      test.use({ colorScheme, viewport });
      test('every screen', async ({ page }) => {
        test.slow();
        const shoot = async (name: string) => {
          await settled(page);
          await page.screenshot({ path: `screenshots/${name}-${colorScheme}-${viewport.width}.png` });
        };
        await page.goto('/sign-in');
        await shoot('sign-in');
        await signIn(page);
        for (const { name, path } of screens) {
          await page.goto(path);
          await shoot(name);
          if (colorScheme === 'light')
            process.stdout.write(`${name} ${viewport.width}: ${await wordsOf(page)} words\n`);
        }
      });
    });
  }
}
