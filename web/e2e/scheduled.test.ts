import { expect, expectAccessible, settled, signIn, test } from './browser';
import { until } from './sluice';

test('a change is scheduled beside Save, shown in the matrix, canceled, and made and taken back in time', async ({
  page,
}) => {
  await signIn(page);
  const post = async (path: string, data: object) => {
    const answer = await page.request.post(`/api/v1/${path}`, { data });
    expect(answer.ok(), await answer.text()).toBe(true);
    return answer.json();
  };
  await post('tenants', { slug: 'scheduled', name: 'Later' });
  const { rule_id } = await post('tenants/scheduled/rules', {
    key_pattern: 'user:{user_id}',
    rate_per_second: 1,
    burst_capacity: 100,
  });

  await page.goto(`/t/scheduled/rules/${rule_id}`);
  await page.getByLabel('Burst', { exact: true }).fill('150');
  await page.getByRole('button', { name: 'Schedule', exact: true }).click();
  const dialog = page.getByRole('dialog');
  await expect(dialog.getByText('At the end the rule gets back what it had before.')).toBeVisible();
  await expectAccessible(page);
  await dialog.getByRole('button', { name: 'Schedule' }).click();
  const list = page.getByRole('list', { name: 'Scheduled changes' });
  await expect(list.getByText('Burst: 150')).toBeVisible();
  await expect(page.getByLabel('Burst', { exact: true })).toHaveValue('100');
  await expectAccessible(page);

  await page.goto('/t/scheduled/plans');
  await settled(page);
  await expect(page.getByRole('gridcell').getByText('scheduled', { exact: true })).toBeVisible();
  await page.goto(`/t/scheduled/rules/${rule_id}`);
  await list.getByRole('button', { name: 'Cancel' }).click();
  await dialog.getByRole('button', { name: 'Cancel change' }).click();
  await expect(list.getByText('Canceled', { exact: true })).toBeVisible();

  const burst = async () => {
    const answer = await page.request.get(`/api/v1/tenants/scheduled/rules/${rule_id}`);
    return (await answer.json()).burst_capacity;
  };
  let change = '';
  await until(async () => {
    const made = await page.request.post('/api/v1/tenants/scheduled/scheduled-changes', {
      data: {
        rule_id,
        version: 1,
        change: { burst_capacity: 150 },
        starts_at: new Date(Date.now() + 2_000).toISOString(),
        ends_at: new Date(Date.now() + 3_600_000).toISOString(),
      },
    });
    change = (await made.json()).change_id;
    return made.status() === 201; // not if the start had passed when it was read
  });
  await expect.poll(burst).toBe(150);
  await post(`tenants/scheduled/scheduled-changes/${change}/cancel`, {});
  expect(await burst()).toBe(100);
});
