import { expectAccessible, settled, signIn, test } from './browser';
import { furnish, overlays } from './overlays';
import { screens } from './screens';
import { ordinaryTraffic } from './traffic';

test.use({ server: 'accessibility' });
test.beforeAll(({ sluice }) => ordinaryTraffic(sluice));

const looks = [
  { colorScheme: 'light' as const, viewport: { width: 1280, height: 800 } },
  { colorScheme: 'dark' as const, viewport: { width: 390, height: 800 } },
];

for (const look of looks) {
  test.describe(`${look.colorScheme}, ${look.viewport.width} wide`, () => {
    test.use(look);
    test('no screen has what WCAG 2.2 AA forbids, and none complains in the console', async ({ page }) => {
      test.setTimeout(600_000); // it opens every screen
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

test('nothing that opens above a screen has what WCAG 2.2 AA forbids, light or dark', async ({ page }) => {
  test.setTimeout(600_000); // it opens everything twice
  await signIn(page);
  const made = await furnish(page);
  for (const { colorScheme, viewport } of looks) {
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
    await page.setViewportSize(viewport);
    for (const { path } of made) {
      await page.goto(path);
      await settled(page);
      await expectAccessible(page);
    }
    for (const { name, path, open } of overlays) {
      await test.step(name, async () => {
        await page.goto(path);
        await settled(page);
        await open(page);
        await expectAccessible(page);
      });
    }
  }
});
