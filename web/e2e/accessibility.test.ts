import { expectAccessible, settled, signIn, test } from './browser';
import { screens } from './screens';
import { ordinaryTraffic } from './traffic';

test.beforeAll(({ sluice }) => ordinaryTraffic(sluice));

for (const look of [
  { colorScheme: 'light' as const, viewport: { width: 1280, height: 800 } },
  { colorScheme: 'dark' as const, viewport: { width: 390, height: 800 } },
]) {
  test.describe(`${look.colorScheme}, ${look.viewport.width} wide`, () => {
    test.use(look);
    test('no screen has what WCAG 2.2 AA forbids, and none complains in the console', async ({ page }) => {
      test.slow(); // it opens every screen
      await page.goto('/sign-in');
      await settled(page);
      await expectAccessible(page);
      await signIn(page);
      for (const { path } of screens) {
        await page.goto(path);
        await settled(page);
        await expectAccessible(page);
      }
    });
  });
}
