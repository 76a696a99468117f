import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { expect, settled, signIn, test } from './browser';
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

test('a new service sends its first check after five clicks', async ({ page }) => {
  await signIn(page);
  const made = await page.request.post('/api/v1/tenants', { data: { slug: 'newcomer', name: 'Newcomer' } });
  expect(made.status()).toBe(201);
  await page.goto('/t/newcomer/overview');
  await settled(page);
  const clicks = await countClicks(page);
  await page.getByRole('link', { name: 'Create a key' }).click();
  await page.getByRole('button', { name: 'Create key' }).first().click();
  await page.getByLabel('Name', { exact: true }).fill('billing');
  await page.keyboard.press('Enter');
  const line = await page.getByRole('region', { name: 'curl' }).innerText();
  await page.getByRole('button', { name: 'Done' }).click();
  await page.getByRole('link', { name: 'Overview', exact: true }).click();
  await expect(page.getByText('Waiting for the first check')).toBeVisible();
  await expect
    .poll(async () => (await promisify(execFile)('sh', ['-c', line.replace('curl -i', 'curl -si')])).stdout)
    .toContain('200 OK');
  await expect(page.getByText('The first check has arrived.')).toBeVisible();
  await clicks.expectAtMost(5);
});
