import type { Page } from '@playwright/test';
import { expect, expectAccessible, settled, signIn, test } from './browser';
import { countClicks } from './clicks';
import { demo, type Sluice } from './sluice';
import { askAll } from './traffic';

test.use({ server: 'recorded' });
test.setTimeout(180_000);

/**
 * Sends 32,768 checks of one user on the plan pro, most of them denied, because Sluice stores a full block at once and
 * waits some minutes with a smaller one.
 */
async function record(page: Page, sluice: Sluice): Promise<void> {
  const check = { user_id: '42', plan: 'pro', endpoint: '/v1/charges', method: 'POST' };
  const isStored = async () => {
    const answer = await page.request.get(`/api/v1/tenants/${demo.tenant}/recording`);
    return (await answer.json()).checks > 0;
  };
  for (let batches = 0; !(await isStored()); batches++) {
    expect(batches, 'batches of 1,000 checks').toBeLessThan(200);
    await askAll(
      sluice,
      Array.from({ length: 1000 }, () => check),
    );
  }
}

test('pro is raised in four clicks, and its review says what the new limit would have done', async ({ page, sluice }, {
  repeatEachIndex,
}) => {
  await signIn(page);
  await record(page, sluice);
  await page.goto(`/t/${demo.tenant}/overview`);
  await settled(page);
  const clicks = await countClicks(page);
  const rate = 250 + 10 * repeatEachIndex;
  await page.getByRole('link', { name: 'Plans', exact: true }).click();
  await page
    .getByRole('row')
    .filter({ has: page.getByText('user:{user_id}', { exact: true }), hasNotText: /daily|half/ })
    .locator('td[data-plan="pro"]')
    .click();
  await page.keyboard.type(`${rate}/s`);
  await page.keyboard.press('Enter');
  await page.getByRole('button', { name: 'Review changes' }).click();
  const dialog = page.getByRole('dialog');
  await expect(dialog.getByText(new RegExp(`${rate} per second`))).toBeVisible();
  await expect(dialog.getByRole('status', { name: 'Effect' })).toHaveText(
    /Of [1-9][\d,]* checks .* this change would have denied [1-9][\d,]* fewer\. Most affected: 42 \(−[1-9]/,
  );
  await dialog.getByRole('button', { name: 'Save', exact: true }).click();
  await expect(page.getByText(/1 change saved/)).toBeVisible();
  await clicks.expectAtMost(4);
});

/** Sets the page's clock a day ahead, so that the recorded checks are yesterday's. */
async function takeForTomorrow(page: Page): Promise<void> {
  await page.route('**/api/**', async (route) => {
    const response = await route.fetch();
    const date = new Date(Date.parse(response.headers().date ?? '') + 86_400_000).toUTCString();
    await route.fulfill({ response, headers: { ...response.headers(), date } });
  });
}

const hours = 12 - new Date().getUTCHours();
const midday = `Etc/GMT${hours > 0 ? '-' : '+'}${Math.abs(hours)}`;

for (const viewport of [
  { width: 1280, height: 800 },
  { width: 390, height: 844 },
]) {
  test.describe(`at ${viewport.width} px`, () => {
    test.use({ viewport, timezoneId: midday });

    test('who would have been denied yesterday by half of a limit is six clicks away', async ({ page, sluice }) => {
      await signIn(page);
      await record(page, sluice);
      await takeForTomorrow(page);
      await page.goto(`/t/${demo.tenant}/replays`);
      await settled(page);
      const clicks = await countClicks(page);
      await page.getByRole('button', { name: 'New replay' }).first().click();
      const dialog = page.getByRole('dialog', { name: 'Replay recorded checks' });
      await dialog.getByRole('combobox', { name: 'Rule' }).click();
      await page.getByRole('option', { name: 'Each user · pro', exact: true }).click();
      await dialog.getByRole('button', { name: 'Half' }).click();
      await dialog.getByText('Yesterday', { exact: true }).click();
      await expect(dialog.getByText(/Recorded since/)).toBeVisible();
      await expectAccessible(page);
      await dialog.getByRole('button', { name: 'Start replay' }).click();
      const byUser = page.getByRole('table', { name: 'By user' });
      await expect(byUser.getByRole('row').filter({ hasText: '42' })).toHaveText(/\+[1-9]/, {
        timeout: 120_000,
      });
      await clicks.expectAtMost(6);
      const width = await page.evaluate(() => document.documentElement.scrollWidth);
      expect(width).toBeLessThanOrEqual(viewport.width);
      await expectAccessible(page);
    });
  });
}

test('a replay of a file is started, followed to its result, and listed', async ({ page, sluice }) => {
  await signIn(page);
  await record(page, sluice);
  const title = `One per hour, ${Date.now()}`;
  await page.goto(`/t/${demo.tenant}/replays`);
  await page.getByRole('button', { name: 'New replay' }).first().click();
  const dialog = page.getByRole('dialog', { name: 'Replay recorded checks' });
  await dialog.getByText('Rules in YAML', { exact: true }).click();
  await dialog.getByLabel('Title').fill(title);
  await dialog
    .getByRole('textbox', { name: 'Rules in YAML' })
    .fill('rules: [{key_pattern: "user:{user_id}", plan: gold}]');
  await dialog.getByRole('button', { name: 'Start replay' }).click();
  await expect(dialog.getByText(/rate/).last()).toBeVisible(); // what is wrong with the file
  await dialog
    .getByRole('textbox', { name: 'Rules in YAML' })
    .fill('rules:\n  - {key_pattern: "user:{user_id}", plan: pro, rate: 1/hour, burst_capacity: 1}\n');
  await expectAccessible(page);
  await dialog.getByRole('button', { name: 'Start replay' }).click();
  await page.waitForURL(/\/replays\/\d+$/);
  await expect(page.getByRole('heading', { level: 1, name: title })).toBeVisible();

  const byRule = page.getByRole('table', { name: 'By rule' });
  await expect(byRule).toBeVisible({ timeout: 120_000 });
  const changed = byRule.getByRole('row', { name: /changed/ });
  await expect(changed).toHaveCount(1);
  // All but one of the checks are denied with the change, and those that passed then are newly denied.
  await expect(page.getByText('Newly denied', { exact: true }).first().locator('..')).toHaveText(/Newly denied\+[1-9]/);
  await expect(page.getByText('No longer denied', { exact: true }).first().locator('..')).toHaveText(
    /No longer denied0/,
  );
  await expect(page.getByRole('table', { name: 'By user' }).getByRole('link', { name: '42' })).toBeVisible();
  await expect(page.getByRole('region', { name: 'the candidate' })).toContainText('rate: 1/hour');
  await expectAccessible(page);

  await page.getByRole('main').getByRole('link', { name: 'Replays' }).click();
  await expect(page.getByRole('row', { name: new RegExp(title) })).toContainText('Done');
});
