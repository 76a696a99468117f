import { expect, expectAccessible, settled, signIn, test } from './browser';
import { screens } from './screens';
import { demo } from './sluice';
import { ordinaryTraffic } from './traffic';

test.use({ viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true, server: 'phone' });

test('a limit is raised with a finger', async ({ page }) => {
  await signIn(page);
  await page.goto(`/t/${demo.tenant}/plans`);
  await settled(page);
  const cell = page.getByRole('row').nth(1).locator('td[data-plan="pro"]');
  await cell.tap();
  await cell.getByLabel(/^Rate of/).fill('300/s');
  await expectAccessible(page);
  await page.getByRole('heading', { name: 'Plans', exact: true }).tap(); // leaves the cell
  await page.getByRole('button', { name: 'Review changes' }).tap();
  await expect(page.getByRole('dialog').getByText(/300 per second/)).toBeVisible();
  await page.getByRole('button', { name: 'Save', exact: true }).tap();
  await expect(page.getByText(/1 change saved/)).toBeVisible();
});

test('the filters of violations fold away', async ({ page }) => {
  await signIn(page);
  await page.goto(`/t/${demo.tenant}/violations?user=42`);
  await settled(page);
  const filters = page.getByRole('search', { name: 'Filters' });
  await expect(filters.getByLabel('User', { exact: true })).toBeHidden();
  await filters.getByRole('button', { name: 'Filters (1)' }).tap();
  await expect(filters.getByLabel('User', { exact: true })).toHaveValue('42');
  await expectAccessible(page);
});

test('no screen is wider than a phone', async ({ page, sluice }) => {
  test.slow();
  await ordinaryTraffic(sluice);
  await signIn(page);
  for (const { name, path } of screens) {
    await page.goto(path);
    await expect(page.locator('main h1').first()).toBeVisible();
    await expect(page.getByRole('status', { name: 'Loading' })).toHaveCount(0);
    const width = await page.evaluate(() => document.documentElement.scrollWidth);
    expect.soft(width, name).toBeLessThanOrEqual(390);
  }
});
