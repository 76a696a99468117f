import { expect, signIn, test } from './browser';
import { countClicks } from './clicks';
import { demo } from './sluice';

test('clicks are counted over pages that are loaded anew, and keys are not', async ({ page }) => {
  await signIn(page);
  await page.goto(`/t/${demo.tenant}/overview`);
  const clicks = await countClicks(page);
  await page.getByRole('link', { name: 'Rules', exact: true }).click();
  await page.waitForURL('**/rules');
  await page.keyboard.press('Tab');
  await page.reload();
  await page.getByRole('link', { name: 'Users', exact: true }).click();
  await page.waitForURL('**/users');
  await clicks.expectAtMost(2);
  await expect(clicks.expectAtMost(1)).rejects.toThrow(/a “Rules”\na “Users”/);
});
