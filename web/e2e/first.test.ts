import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import type { Page } from '@playwright/test';
import { expect, expectAccessible, settled, signIn, test } from './browser';

async function paste(line: string): Promise<{ status: number; text: string }> {
  const { stdout } = await promisify(execFile)('sh', ['-c', line.replace('curl -i', 'curl -si')]);
  return { status: Number(/^HTTP\/[\d.]+ (\d+)/.exec(stdout)?.[1]), text: stdout };
}

async function makeTenant(page: Page, name: string) {
  await page.goto('/platform/tenants');
  await page.getByRole('button', { name: 'New tenant' }).click();
  await page.getByLabel('Name', { exact: true }).fill(name);
  await expectAccessible(page);
  await page.getByRole('button', { name: 'Create tenant' }).click();
  await page.waitForURL('**/t/acme-payments/overview');
}

async function importRule(page: Page) {
  await page.goto('/t/acme-payments/settings/import-export');
  await page
    .getByLabel('YAML')
    .fill('rules:\n  - key_pattern: "user:{user_id}"\n    plan: free\n    rate: 1/hour\n    burst_capacity: 2\n');
  await page.getByRole('button', { name: 'Review changes' }).click();
  await expect(page.getByRole('region', { name: 'Changes' }).getByText('1 per hour')).toBeVisible();
  await expectAccessible(page);
  await page.getByRole('button', { name: 'Apply 1 change' }).click();
  await expect(page.getByText(/1 change applied/)).toBeVisible();
}

async function makeKey(page: Page): Promise<string> {
  await page.goto('/t/acme-payments/settings/keys');
  await page.getByRole('button', { name: 'Create key' }).click();
  await page.getByLabel('Name', { exact: true }).fill('gateway');
  await page.getByRole('dialog').getByRole('button', { name: 'Create key' }).click();
  await expect(page.getByText('Copy it now.')).toBeVisible();
  await expectAccessible(page);
  const line = await page.getByRole('region', { name: 'curl' }).innerText();
  await page.getByRole('button', { name: 'Done' }).click();
  await expect(page.getByText('gateway', { exact: true })).toBeVisible();
  return line;
}

test('from the first sign-in to the first blocked request', async ({ page, sluice }) => {
  await signIn(page);
  await makeTenant(page, 'Acme Payments');
  await importRule(page);

  await page.goto('/t/acme-payments/try?user=42');
  await expect(page.getByRole('region', { name: 'Decision' }).getByText('2 of 2', { exact: true })).toBeVisible();
  await expect(page.getByText(`${sluice.checkUrl}/v1/check`)).toBeVisible();

  const line = await makeKey(page);
  await expect.poll(async () => (await paste(line)).status).toBe(200); // until the key is known
  await expect.poll(async () => (await paste(line)).status).toBe(429);
  expect((await paste(line)).text).toMatch(/Retry-After: \d+/);

  await page.goto('/t/acme-payments/try?user=42');
  const decision = page.getByRole('region', { name: 'Decision' });
  await expect(decision.getByRole('heading', { name: 'Denied' })).toBeVisible();
  await expect(decision.getByText(/user:\{user_id\} has too few tokens/)).toBeVisible();
  await settled(page);
});

test('the API reference shows what an operation takes, and who may call it', async ({ page }) => {
  await page.goto('/api/v1/docs');
  await page.getByRole('link', { name: 'Get a plan, with its number of rules and users' }).click();
  await expect(page.getByText('/api/v1/tenants/{tenant}/plans/{plan}').first()).toBeVisible();
  await expect(page.getByText('Who may call it: viewer').first()).toBeVisible();
});
