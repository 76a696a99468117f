import type { Page } from '@playwright/test';
import { expect, expectAccessible, settled, signIn, test } from './browser';
import { countClicks } from './clicks';
import type { Sluice } from './sluice';
import { newTenant, post } from './tenants';

async function oneRule(page: Page, slug: string) {
  await newTenant(page, slug, ['free']);
  const rule = await post(page.request, `tenants/${slug}/rules`, {
    key_pattern: 'user:{user_id}',
    rate_per_second: 1 / 3600,
    rate_unit: 'hour',
    burst_capacity: 100,
  });
  const { secret } = await post(page.request, `tenants/${slug}/api-keys`, { name: 'ci', permissions: ['check'] });
  return { rule: rule.rule_id as string, key: secret as string };
}

async function ask(sluice: Sluice, key: string, user: string, cost: number): Promise<number> {
  const answer = await fetch(`${sluice.checkUrl}/v1/check`, {
    method: 'POST',
    headers: { Authorization: `Bearer ${key}`, 'Content-Type': 'application/json' },
    body: JSON.stringify({ user_id: user, cost }),
  });
  return answer.status;
}

test('a limit is tried as shadow, compared and promoted in five clicks from the overview', async ({ page, sluice }) => {
  await signIn(page);
  const { rule, key } = await oneRule(page, 'tried');
  await page.goto('/t/tried/overview');
  const clicks = await countClicks(page);
  await page.getByRole('link', { name: 'Rules', exact: true }).click();
  await page
    .getByRole('row', { name: /Each user/ })
    .getByRole('link')
    .first()
    .click();
  await page.getByLabel('Burst', { exact: true }).fill('5');
  await page.getByRole('button', { name: 'Try as shadow' }).click();
  await expect(page.getByRole('heading', { name: 'Candidate and live rule' })).toBeVisible();
  const candidate = page.url().split('/').at(-1);

  // Both are compared from the first whole minute on. Then the candidate would deny what the live rule lets through.
  const comparison = async () => (await page.request.get(`/api/v1/tenants/tried/rules/${candidate}/comparison`)).json();
  await expect(page.getByText(/^Both are compared from .* on\.$/)).toBeVisible();
  await expect.poll(async () => (await comparison()).points.length, { timeout: 90_000 }).toBeGreaterThan(0);
  await expect
    .poll(async () => {
      expect(await ask(sluice, key, 'anna', 6)).not.toBe(503);
      return (await comparison()).items[0]?.subject;
    })
    .toBe('anna');
  await expect(page.getByRole('table', { name: 'Denied in addition' })).toContainText('anna', {
    timeout: 60_000,
  });
  await expectAccessible(page);

  await page.getByRole('button', { name: 'Promote' }).click();
  const dialog = page.getByRole('dialog');
  await expect(dialog).toContainText('goes from 1 per hour, bursts to 100 to 1 per hour, bursts to 5 within 2 s');
  await expectAccessible(page);
  await dialog.getByRole('button', { name: 'Promote' }).click();
  await expect(page).toHaveURL(new RegExp(`/rules/${rule}$`));
  await expect(page.getByLabel('Burst', { exact: true })).toHaveValue('5');
  await clicks.expectAtMost(5);
  await expect.poll(() => ask(sluice, key, 'berta', 6)).toBe(429);
});

test('the matrix marks a candidate, and a new rule there can start as shadow and is enforced on its page', async ({
  page,
}) => {
  await signIn(page);
  const { rule } = await oneRule(page, 'shadows');
  const made = await page.request.post(`/api/v1/tenants/shadows/rules/${rule}/candidate`, {
    data: { burst_capacity: 7 },
  });
  expect(made.status()).toBe(201);
  await page.goto('/t/shadows/plans');
  await settled(page);
  await expect(page.getByRole('link', { name: /Open the candidate: Each user, all plans/ })).toBeVisible();
  await expect(page.getByRole('rowheader')).toHaveCount(1);

  await page.getByRole('button', { name: 'Add rule' }).click();
  await page.getByRole('dialog').getByLabel('Key pattern').fill('global');
  await page.getByLabel('Start in shadow mode').check();
  await expectAccessible(page);
  await page.getByRole('dialog').getByRole('button', { name: 'Add rule' }).click();
  await page.keyboard.type('10/s');
  await page.keyboard.press('Enter');
  await page.getByRole('button', { name: 'Review changes' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Save', exact: true }).click();
  await expect(page.getByText(/1 change saved/)).toBeVisible();
  await page.getByRole('link', { name: /Open the rule: All requests/ }).click();
  await page.getByRole('button', { name: 'Enforce', exact: true }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Enforce' }).click();
  await expect(page.getByText('Rule enforced')).toBeVisible();
});
