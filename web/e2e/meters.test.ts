import { expect, expectAccessible, settled, signIn, test } from './browser';
import { demo, type Sluice } from './sluice';

test.use({ server: 'meters' });

async function ask(sluice: Sluice, body: object): Promise<{ status: number; text: string }> {
  const answer = await fetch(`${sluice.checkUrl}/v1/check`, {
    method: 'POST',
    headers: { Authorization: `Bearer ${demo.key}`, 'Content-Type': 'application/json' },
    body: JSON.stringify(body),
  });
  return { status: answer.status, text: await answer.text() };
}

test('a budget in dollars, charged after the request, is made, used up, and said in dollars everywhere', async ({
  page,
  sluice,
}) => {
  const user = 'meters-7';
  await signIn(page);
  await page.goto(`/t/${demo.tenant}/rules/new?pattern=user:{user_id}`);
  await page.getByLabel('Counts').fill('usd');
  await page.getByLabel('Algorithm', { exact: true }).selectOption('fixed_window');
  await page.getByLabel('Window', { exact: true }).selectOption('month');
  await page.getByLabel('USD per window').fill('2');
  await expect(page.getByText('2 USD per month')).toBeVisible();
  await page.getByText('Advanced', { exact: true }).click();
  await page.getByLabel('Charged', { exact: true }).selectOption('After the request');
  await expectAccessible(page);
  await page.getByRole('button', { name: 'Create rule' }).click();
  await expect(page.getByRole('heading', { name: 'Each user · USD' })).toBeVisible();

  await expect
    .poll(async () => (await ask(sluice, { user_id: user, costs: { usd: 0 } })).text)
    .toContain('"meter":"usd"');
  for (const usd of [1.25, 9]) expect((await ask(sluice, { user_id: user, costs: { usd } })).status).toBe(200);
  const denied = await ask(sluice, { user_id: user });
  expect(denied.status).toBe(429);
  expect(denied.text).toContain('"reason":"limit_exceeded"');

  await page.goto(`/t/${demo.tenant}/users/${user}`);
  const quota = page.getByRole('list', { name: 'Quotas' }).getByRole('listitem').filter({ hasText: 'USD' });
  await expect(quota).toContainText('Each user USD · all plans');
  await expect(quota).toContainText('2 of 2 USD used, used up');
  await expectAccessible(page);

  await page.goto(`/t/${demo.tenant}/violations?user_id=${user}`);
  const row = page.getByRole('row').filter({ hasText: '2 USD per month' });
  await expect(row.first()).toContainText('Each user USD · all plans');
  await row.first().click();
  const words = /Of the limit “Each user · USD” \(2 USD per month\) nothing was left/;
  await expect(page.getByText(words)).toBeVisible();

  await page.goto(`/t/${demo.tenant}/overview`);
  await page.getByLabel('Meter', { exact: true }).selectOption('USD');
  const tiles = page.getByRole('region', { name: 'Summary' });
  await expect(tiles).toContainText('cost 2 USD', { timeout: 60_000 });
  const limited = page.getByRole('table', { name: 'Top callers' });
  await expect(limited.getByRole('row').filter({ hasText: user })).toContainText('Each user · USD', {
    timeout: 60_000,
  });
  await expect(page).toHaveURL(/meter=usd/);
  await expectAccessible(page);

  await page.goto(`/t/${demo.tenant}/try?user=${user}`);
  for (const [at, meter] of [
    [1, 'usd'],
    [2, 'gpu_seconds'],
  ] as const) {
    await page.getByRole('button', { name: 'Add cost' }).click();
    await page.getByLabel(`Meter ${at}: name`).fill(meter);
    await page.getByLabel(`Meter ${at}: value`).fill('1');
  }
  await page.getByRole('button', { name: 'Run check' }).click();
  await expect(page.getByRole('region', { name: 'Decision' })).toContainText(
    'user:{user_id} (USD) has too little left',
  );
  await expect(page.getByText('No matching rule counts gpu_seconds')).toBeVisible();
  await expectAccessible(page);

  await page.goto(`/t/${demo.tenant}/plans`);
  await settled(page);
  await expect(page.getByRole('row').filter({ hasText: 'Each user' }).filter({ hasText: 'USD' })).toContainText(
    '2 USD/month',
  );
  await expectAccessible(page);
});
