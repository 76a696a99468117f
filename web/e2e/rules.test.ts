import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { expectAccessible, newPage, settled, signIn, startBrowser } from './browser';
import { demo, type Sluice, startSluice, until } from './sluice';

let sluice: Sluice;
let browser: Browser;
beforeAll(async () => {
  [sluice, browser] = await Promise.all([startSluice(), startBrowser()]);
});
afterAll(async () => {
  await browser?.close();
  await sluice?.stop();
});

async function ask(check: object): Promise<{ status: number; rule: number | null }> {
  const answer = await fetch(`${sluice.checkUrl}/v1/check`, {
    method: 'POST',
    headers: { Authorization: `Bearer ${demo.key}`, 'Content-Type': 'application/json' },
    body: JSON.stringify(check),
  });
  return { status: answer.status, rule: (await answer.json()).violated_rule_id };
}

test('a shadow rule is made from parts, reports nothing to callers, and is then put into force', async () => {
  const { page, complaints, close } = await newPage(browser, sluice);
  await signIn(page);
  await page.goto(`/t/${demo.tenant}/rules`);
  await page.getByRole('link', { name: 'New rule' }).click();

  await page.getByRole('button', { name: 'and only for …' }).click();
  await page.getByLabel('Value').fill('/api/orders');
  const built = 'user:{user_id}:endpoint:/api/orders';
  await until(async () => (await page.getByLabel('Key pattern').inputValue()) === built);
  await page.getByText('Each user on /api/orders').waitFor();
  await page.getByText('bucket of user 43').waitFor();
  await page.getByLabel('Rate', { exact: true }).fill('2/min');
  await page.getByLabel('Burst').fill('2');
  await page.getByText('Shadow', { exact: true }).click();
  await page.getByRole('application', { name: /requests in/ }).waitFor();
  await expectAccessible(page);
  await page.getByRole('button', { name: 'Make rule' }).click();
  await page.getByRole('heading', { name: 'Each user on /api/orders' }).waitFor();
  await page.getByText(/it reports, and denies nothing/).waitFor();

  const check = { user_id: '7', endpoint: '/api/orders', cost: 1 };
  for (let times = 0; times < 4; times++) expect((await ask(check)).status).toBe(200);

  await page.getByRole('button', { name: 'Enforce', exact: true }).click();
  await page.getByText('This rule begins to decide').waitFor();
  await page.getByRole('dialog').getByRole('button', { name: 'Enforce' }).click();
  const id = Number(page.url().split('/').at(-1));
  await until(async () => (await ask(check)).rule === id);
  expect(complaints).toEqual([]);
  await close();
});

test('a rule is changed, its history says how, and the change is undone', async () => {
  const { page, close } = await newPage(browser, sluice);
  await signIn(page);
  await page.goto(`/t/${demo.tenant}/rules?q=reports`);
  await page
    .getByRole('row', { name: /Each user on \/api\/reports/ })
    .getByRole('link')
    .first()
    .press('Enter');
  await page.getByLabel('Burst').fill('30');
  await page.getByText('Buckets keep what they hold.').waitFor();
  await page.getByRole('button', { name: 'Save', exact: true }).click();
  await page.getByText('Rule saved').waitFor();
  await page.getByRole('button', { name: 'Undo' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Undo' }).click();
  await page.getByText('Undone').waitFor();
  await until(async () => (await page.getByLabel('Burst').inputValue()) === '3');
  await close();
});

test('a lost race on a rule shows both versions; theirs can be taken', async () => {
  const { page, close } = await newPage(browser, sluice);
  await signIn(page);
  await page.goto(`/t/${demo.tenant}/rules?q=search`);
  await page
    .getByRole('row', { name: /api\/search/ })
    .getByRole('link')
    .first()
    .press('Enter');
  await page.getByLabel('Burst').fill('2500');
  const id = page.url().split('/').at(-1);
  const path = `/api/v1/tenants/${demo.tenant}/rules/${id}`;
  await page.request.patch(path, { headers: { 'If-Match': '*' }, data: { burst_capacity: 2200 } });
  await page.getByRole('button', { name: 'Save', exact: true }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByText('Somebody changed this rule').waitFor();
  await dialog.getByRole('cell', { name: '2,200' }).waitFor();
  await dialog.getByRole('button', { name: 'Take the saved one' }).click();
  await dialog.waitFor({ state: 'hidden' });
  await until(async () => (await page.getByLabel('Burst').inputValue()) === '2,200');
  await close();
});

test('one user gets an override that ends', async () => {
  const { page, complaints, close } = await newPage(browser, sluice);
  await signIn(page);
  await page.goto(`/t/${demo.tenant}/rules?q=reports`);
  await page
    .getByRole('row', { name: /api\/reports/ })
    .getByRole('link')
    .first()
    .press('Enter');
  await page.getByRole('button', { name: 'New override' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('User').fill('42');
  await dialog.getByLabel('Burst').fill('100');
  await dialog.getByLabel('Reason').fill('migration week');
  await expectAccessible(page);
  await dialog.getByRole('button', { name: 'Save override' }).click();
  await page.getByRole('row', { name: /42.*migration week.*in 7/ }).waitFor();
  await until(async () => (await ask({ user_id: '42', endpoint: '/api/reports', cost: 20 })).status === 200);
  await settled(page);
  expect(complaints).toEqual([]);
  await close();
});
