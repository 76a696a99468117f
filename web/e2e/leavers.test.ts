import type { Page } from '@playwright/test';
import { expect, expectAccessible, signIn, test } from './browser';
import { demo } from './sluice';

const tenant = `/api/v1/tenants/${demo.tenant}`;

async function send(page: Page, method: string, path: string, data?: object): Promise<unknown> {
  const answer = await page.request.fetch(path, { method, data, headers: { 'If-Match': '*' } });
  const text = await answer.text();
  expect(answer.ok(), `${method} ${path}: ${text}`).toBe(true);
  return text && JSON.parse(text);
}

async function createKey(page: Page, name: string): Promise<void> {
  await send(page, 'POST', `${tenant}/api-keys`, {
    name,
    permissions: ['check'],
    networks: [],
    expires_at: null,
  });
}

test('the keys of an owner who was removed wait for a decision: one stays, one is revoked', async ({
  page,
  newProfile,
}) => {
  await signIn(page);
  await page.goto(`/t/${demo.tenant}/settings/members`);
  await page.getByRole('button', { name: 'Invite' }).click();
  await page.getByLabel('E-mail').fill('lea@example.com');
  await page.getByLabel('Role', { exact: true }).selectOption('owner');
  await page.getByRole('button', { name: 'Create link' }).click();
  const link = await page.getByRole('dialog').getByText('/invitation#').innerText();

  const leaver = await newProfile();
  await leaver.goto(link);
  await leaver.getByLabel('Your name').fill('Lea');
  await leaver.getByLabel('Choose a password').fill('a password that nobody guesses');
  await leaver.getByRole('button', { name: 'Create account and join' }).click();
  await leaver.waitForURL(`**/t/${demo.tenant}/overview`);
  await createKey(leaver, 'billing');
  await createKey(leaver, 'laptop');

  await page.goto(`/t/${demo.tenant}/settings/keys`);
  await expect(page.getByRole('row', { name: /^billing slk_/ })).toBeVisible();
  const banner = page.getByRole('status').filter({ hasText: 'people who have left' });
  await expect(banner).toHaveCount(0);

  const { items } = (await send(page, 'GET', `${tenant}/members`)) as {
    items: { account_id: string; email: string }[];
  };
  const lea = items.find(({ email }) => email === 'lea@example.com');
  await send(page, 'DELETE', `${tenant}/members/${lea?.account_id}`);
  await page.reload();
  await expect(banner.getByText(/^2 keys made by people who have left still work/)).toBeVisible();
  await expect(banner.getByText('lea@example.com')).toHaveCount(2);
  await expectAccessible(page);

  await banner.getByRole('button', { name: 'Keep billing' }).click();
  await expect(banner.getByText(/^1 key made by people who have left still works/)).toBeVisible();
  await expect(page.getByRole('row', { name: /^billing slk_/ }).getByText('has left; kept')).toBeVisible();
  await banner.getByRole('button', { name: 'Revoke laptop' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Revoke key' }).click();
  await expect(banner).toHaveCount(0);
  await expect(page.getByRole('row', { name: /laptop/ })).toHaveCount(0);
  await expect(page.getByRole('row', { name: /^billing slk_/ })).toBeVisible();
});
