import { expect, expectAccessible, settled, signIn, test } from './browser';
import { demo, type Sluice } from './sluice';

async function ask(sluice: Sluice, check: object): Promise<{ status: number; rule: number | null }> {
  const answer = await fetch(`${sluice.checkUrl}/v1/check`, {
    method: 'POST',
    headers: { Authorization: `Bearer ${demo.key}`, 'Content-Type': 'application/json' },
    body: JSON.stringify(check),
  });
  return { status: answer.status, rule: (await answer.json()).violated_rule_id };
}

test('a shadow rule is made from parts, reports nothing to callers, and is then put into force', async ({
  page,
  sluice,
}) => {
  await signIn(page);
  await page.goto(`/t/${demo.tenant}/rules`);
  await page.getByRole('link', { name: 'New rule' }).click();

  await page.getByRole('button', { name: 'Add condition' }).click();
  await page.getByLabel('Value').fill('/api/orders');
  const built = 'user:{user_id}:endpoint:/api/orders';
  await expect(page.getByLabel('Key pattern')).toHaveValue(built);
  await expect(page.getByText('Each user on /api/orders')).toBeVisible();
  await page.getByLabel('Rate', { exact: true }).fill('2/min');
  await page.getByLabel('Burst', { exact: true }).fill('2');
  await page.getByText('Shadow', { exact: true }).click();
  await expect(page.getByRole('application', { name: /requests in/ })).toBeVisible();
  await expectAccessible(page);
  await page.getByRole('button', { name: 'Create rule' }).click();
  await expect(page.getByRole('heading', { name: 'Each user on /api/orders' })).toBeVisible();
  await expect(page.getByText(/it reports what it would deny/)).toBeVisible();

  const check = { user_id: '7', endpoint: '/api/orders', cost: 1 };
  for (let times = 0; times < 4; times++) expect((await ask(sluice, check)).status).toBe(200);

  await page.getByRole('button', { name: 'Enforce', exact: true }).click();
  await expect(page.getByText('This rule is enforced')).toBeVisible();
  await page.getByRole('dialog').getByRole('button', { name: 'Enforce' }).click();
  const id = Number(page.url().split('/').at(-1));
  await expect.poll(async () => (await ask(sluice, check)).rule).toBe(id);
});

test('a rule is changed, its history says how, and the change is undone', async ({ page }) => {
  await signIn(page);
  await page.goto(`/t/${demo.tenant}/rules?q=reports`);
  await page
    .getByRole('row', { name: /Each user on \/api\/reports/ })
    .getByRole('link')
    .first()
    .press('Enter');
  await page.getByLabel('Burst', { exact: true }).fill('30');
  await expect(page.getByText('Buckets keep their tokens.')).toBeVisible();
  await page.getByRole('button', { name: 'Save', exact: true }).click();
  await expect(page.getByText('Rule saved')).toBeVisible();
  await page.getByRole('alert').getByRole('button', { name: 'Undo' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Undo' }).click();
  await expect(page.getByText('Change undone')).toBeVisible();
  await expect(page.getByLabel('Burst', { exact: true })).toHaveValue('3');
});

test('a lost race on a rule shows both versions; theirs can be taken', async ({ page }) => {
  await signIn(page);
  await page.goto(`/t/${demo.tenant}/rules?q=search`);
  await page
    .getByRole('row', { name: /api\/search/ })
    .getByRole('link')
    .first()
    .press('Enter');
  await page.getByLabel('Burst', { exact: true }).fill('2500');
  const id = page.url().split('/').at(-1);
  const path = `/api/v1/tenants/${demo.tenant}/rules/${id}`;
  await page.request.patch(path, { headers: { 'If-Match': '*' }, data: { burst_capacity: 2200 } });
  await page.getByRole('button', { name: 'Save', exact: true }).click();
  const dialog = page.getByRole('dialog');
  await expect(dialog.getByText('Someone changed this rule')).toBeVisible();
  await expect(dialog.getByRole('cell', { name: '2,200' })).toBeVisible();
  await dialog.getByRole('button', { name: 'Keep the saved version' }).click();
  await expect(dialog).toBeHidden();
  await expect(page.getByLabel('Burst', { exact: true })).toHaveValue('2,200');
});

test('one user gets an override that ends', async ({ page, sluice }) => {
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
  await dialog.getByLabel('Burst', { exact: true }).fill('100');
  await dialog.getByLabel('Reason').fill('migration week');
  await expectAccessible(page);
  await dialog.getByRole('button', { name: 'Save override' }).click();
  await expect(page.getByRole('row', { name: /42.*migration week.*in 1 day/ })).toBeVisible();
  await expect
    .poll(async () => (await ask(sluice, { user_id: '42', endpoint: '/api/reports', cost: 20 })).status)
    .toBe(200);
  await settled(page);
});
