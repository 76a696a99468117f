import type { Page } from '@playwright/test';
import { expect, expectAccessible, settled, signIn, test } from './browser';
import { countClicks } from './clicks';
import { demo, type Sluice, timeUntil } from './sluice';

const plans = `/t/${demo.tenant}/plans`;

async function cell(page: Page, pattern: string, name: string, plan: string) {
  const columns = await page.getByRole('columnheader').allInnerTexts();
  const column = columns.findIndex((text) => text.startsWith(plan));
  const row = page.getByRole('row').filter({ has: page.getByText(pattern, { exact: true }) });
  const named = name ? row.filter({ hasText: name }) : row.filter({ hasNotText: /daily|half/ });
  return named.locator('th, td').nth(column);
}

async function ask(sluice: Sluice, user: string, cost: number): Promise<number> {
  const answer = await fetch(`${sluice.checkUrl}/v1/check`, {
    method: 'POST',
    headers: { Authorization: `Bearer ${demo.key}`, 'Content-Type': 'application/json' },
    body: JSON.stringify({ user_id: user, plan: 'pro', cost }),
  });
  return answer.status;
}

test('raising the pro limit by keyboard lets a request pass within 2 s', async ({ page, sluice }) => {
  await signIn(page);
  await page.goto(plans);
  await settled(page);
  expect(await ask(sluice, 'anna', 700)).toBe(429); // above the burst of 500

  await (await cell(page, 'user:{user_id}', '', 'pro')).focus();
  await page.keyboard.type('200/s');
  await page.keyboard.press('Tab');
  await page.keyboard.press('Control+A');
  await page.keyboard.type('1000');
  await page.keyboard.press('Enter');
  await expect(page.getByText('1 change not saved')).toBeVisible();
  await page.getByRole('button', { name: 'Review changes' }).click();
  const dialog = page.getByRole('dialog');
  await expect(dialog.getByText('100 per second, bursts to 500')).toBeVisible();
  await expect(dialog.getByText('200 per second, bursts to 1,000')).toBeVisible();
  await expectAccessible(page);
  const said = page.getByText(/1 change saved/).waitFor();
  const answered = page.waitForResponse(
    (answer) => answer.url().endsWith('/matrix') && answer.request().method() === 'POST',
  );
  await dialog.getByRole('button', { name: 'Save', exact: true }).click();
  expect((await answered).status()).toBe(200);
  expect(await timeUntil(async () => (await ask(sluice, 'berta', 700)) === 200)).toBeLessThan(2000);
  await said;
});

test('a lost race shows both versions, and mine can be saved over theirs', async ({ page }) => {
  await signIn(page);
  await page.goto(plans);
  await settled(page);
  const mine = await cell(page, 'user:{user_id}', '', 'enterprise');
  await mine.focus();
  await page.keyboard.type('2000/s');
  await page.keyboard.press('Enter');

  const api = page.request;
  const { items } = await (await api.get(`/api/v1/tenants/${demo.tenant}/rules?plan=enterprise`)).json();
  const path = `/api/v1/tenants/${demo.tenant}/rules/${items[0].rule_id}`;
  const theirs = await api.patch(path, { headers: { 'If-Match': '*' }, data: { rate_per_second: 1500 } });
  expect(theirs.status()).toBe(200);

  await page.getByRole('button', { name: 'Review changes' }).click();
  await expect(page.getByText(/Someone changed this limit/)).toBeVisible();
  await expect(page.getByText('1,500 per second, bursts to 5,000')).toBeVisible();
  await expect(page.getByText('2,000 per second, bursts to 5,000')).toBeVisible();
  await expectAccessible(page);
  await page.getByRole('button', { name: 'Overwrite with mine' }).click();
  await page.getByRole('button', { name: 'Save', exact: true }).click();
  await expect(page.getByText(/1 change saved/)).toBeVisible();
  expect((await (await api.get(path)).json()).rate_per_second).toBe(2000);
});

test('while the server is away what was typed stays, and can be saved when it is back', async ({ page, sluice }) => {
  await signIn(page);
  await page.goto(plans);
  await settled(page);
  await (await cell(page, 'user:{user_id}', 'daily', 'free')).focus();
  await page.keyboard.type('20000/day');
  await page.keyboard.press('Enter');
  await sluice.pause();
  await page.getByRole('button', { name: 'Review changes' }).click();
  await expect(page.getByText('Cannot reach the server.')).toBeVisible();
  await page.getByRole('button', { name: 'Back' }).click();
  await expect(page.getByText('1 change not saved')).toBeVisible();
  await sluice.resume();
  await expect(page.getByText('Cannot reach the server.')).toBeHidden();
  await page.getByRole('button', { name: 'Review changes' }).click();
  await page.getByRole('button', { name: 'Save', exact: true }).click();
  await expect(page.getByText(/1 change saved/)).toBeVisible();
});

test('one plan is raised above a limit for all plans in three clicks, and moved and removed in a few more', async ({
  page,
}) => {
  await signIn(page);
  const at = `/api/v1/tenants/${demo.tenant}`;
  const rule = { key_pattern: 'user:{user_id}:endpoint:/raised', rate: '6/minute', burst_capacity: 6 };
  expect((await page.request.post(`${at}/rules`, { data: rule })).status()).toBe(201);
  expect((await page.request.post(`${at}/plans`, { data: { name: 'team' } })).status()).toBe(201);
  await page.goto(plans);
  await settled(page);
  const clicks = await countClicks(page);
  await (await cell(page, 'user:{user_id}:endpoint:/raised', '', 'pro')).click();
  await page.keyboard.type('60/min');
  await page.keyboard.press('Enter');
  await expect(page.getByText('the others stay 6/min')).toBeVisible();
  await page.getByRole('button', { name: 'Review changes' }).click();
  const dialog = page.getByRole('dialog', { name: 'Save 1 change?' });
  await expect(dialog.getByText(/The others stay at 6 per minute/)).toBeVisible();
  await expectAccessible(page);
  await dialog.getByRole('button', { name: 'Save', exact: true }).click();
  await expect(page.getByText(/1 change saved/)).toBeVisible();
  await clicks.expectAtMost(3);
  await expect(await cell(page, 'user:{user_id}:endpoint:/raised', '', 'team')).toContainText('6/min');

  const columns = async () => (await page.getByRole('columnheader').allInnerTexts()).map((text) => text.split(/\s/)[0]);
  expect(await columns()).toEqual(['Rule', 'free', 'pro', 'enterprise', 'team', 'All']);
  await page.getByRole('columnheader', { name: 'team' }).dragTo(page.getByRole('columnheader', { name: 'pro' }));
  await expect.poll(columns).toEqual(['Rule', 'free', 'team', 'pro', 'enterprise', 'All']);

  const user = await page.request.put(`${at}/users/walker/plan`, {
    data: { plan: 'team' },
    headers: { 'If-Match': '*' },
  });
  expect(user.status()).toBe(200);
  await page.reload();
  await page.getByRole('button', { name: 'Plan team' }).click();
  await page.getByRole('menuitem', { name: 'Remove plan' }).click();
  const removal = page.getByRole('dialog', { name: 'Remove the plan team?' });
  await expect(removal.getByLabel('Move its 1 user to')).toHaveValue('free');
  await expectAccessible(page);
  await removal.getByRole('button', { name: 'Remove plan' }).click();
  await expect.poll(columns).toEqual(['Rule', 'free', 'pro', 'enterprise', 'All']);
  expect(await (await page.request.get(`${at}/users/walker`)).json()).toMatchObject({ plan: 'free' });
});
