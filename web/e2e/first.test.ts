import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { expectAccessible, newPage, settled, signIn, startBrowser } from './browser';
import { type Sluice, startSluice, until } from './sluice';

let sluice: Sluice;
let browser: Browser;
beforeAll(async () => {
  [sluice, browser] = await Promise.all([startSluice(), startBrowser()]);
});
afterAll(async () => {
  await browser?.close();
  await sluice?.stop();
});

/** Pastes a line into a shell, and returns the status that curl shows. */
async function paste(line: string): Promise<{ status: number; text: string }> {
  const { stdout } = await promisify(execFile)('sh', ['-c', line.replace('curl -i', 'curl -si')]);
  return { status: Number(/^HTTP\/[\d.]+ (\d+)/.exec(stdout)?.[1]), text: stdout };
}

async function makeTenant(page: Page, name: string) {
  await page.goto('/platform/tenants');
  await page.getByRole('button', { name: 'New tenant' }).click();
  await page.getByLabel('Name', { exact: true }).fill(name);
  await expectAccessible(page);
  await page.getByRole('button', { name: 'Make tenant' }).click();
  await page.waitForURL('**/t/acme-payments/overview');
}

async function importRule(page: Page) {
  await page.goto('/t/acme-payments/settings/import-export');
  await page
    .getByLabel('YAML')
    .fill(
      'rules:\n  - key_pattern: "user:{user_id}"\n    plan: free\n    rate: 1/hour\n    burst_capacity: 2\n',
    );
  await page.getByRole('button', { name: 'Show what would change' }).click();
  await page.getByRole('region', { name: 'What would change' }).getByText('1 per hour').waitFor();
  await expectAccessible(page);
  await page.getByRole('button', { name: 'Make 1 change' }).click();
  await page.getByText(/1 change made/).waitFor();
}

/** The line with the new key in it. */
async function makeKey(page: Page): Promise<string> {
  await page.goto('/t/acme-payments/settings/keys');
  await page.getByRole('button', { name: 'Create key' }).click();
  await page.getByLabel('Name', { exact: true }).fill('gateway');
  await page.getByRole('dialog').getByRole('button', { name: 'Create key' }).click();
  await page.getByText('Copy it now.').waitFor();
  await expectAccessible(page);
  const line = await page.getByRole('region', { name: 'curl' }).innerText();
  await page.getByRole('button', { name: 'Done' }).click();
  await page.getByText('gateway', { exact: true }).waitFor();
  return line;
}

test('from the first sign-in to the first blocked request', async () => {
  const { page, complaints, close } = await newPage(browser, sluice);
  await signIn(page);
  await makeTenant(page, 'Acme Payments');
  await importRule(page);

  // Nothing tells the page where services ask; whoever tries it does, once.
  await page.goto('/t/acme-payments/try?user=42');
  await page.getByRole('region', { name: 'Decision' }).getByText('2 of 2', { exact: true }).waitFor();
  // The server knows where its check endpoint is: nobody has to type it.
  await page.getByText(`${sluice.checkUrl}/v1/check`).waitFor();

  const line = await makeKey(page);
  await until(async () => (await paste(line)).status === 200); // until the key is known
  await until(async () => (await paste(line)).status === 429);
  expect((await paste(line)).text).toMatch(/Retry-After: \d+/);

  await page.goto('/t/acme-payments/try?user=42');
  const decision = page.getByRole('region', { name: 'Decision' });
  await decision.getByRole('heading', { name: 'Denied' }).waitFor();
  await decision.getByText(/user:\{user_id\} lacks the tokens/).waitFor();
  await settled(page);
  expect(complaints).toEqual([]);
  await close();
});
