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
  await dialog.getByRole('checkbox', { name: 'Take it back' }).check();
  await expect(
    dialog.getByText('At the end the rule gets back what it had, unless somebody edited it meanwhile.'),
  ).toBeVisible();
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
        rules: [{ rule_id, version: 1, change: { burst_capacity: 150 } }],
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

test('a column is scheduled from the review, made at its time, and taken back except where somebody edited it', async ({
  page,
}) => {
  await signIn(page);
  const post = async (path: string, data: object) => {
    const answer = await page.request.post(`/api/v1/${path}`, { data });
    expect(answer.ok(), await answer.text()).toBe(true);
    return answer.json();
  };
  await post('tenants', { slug: 'column', name: 'Column' });
  await post('tenants/column/plans', { name: 'pro' });
  const ids: number[] = [];
  for (const endpoint of ['/search', '/upload', '/login']) {
    const { rule_id } = await post('tenants/column/rules', {
      key_pattern: `endpoint:${endpoint}`,
      plan: 'pro',
      rate_per_second: 10,
      burst_capacity: 100,
    });
    ids.push(rule_id);
  }
  const bursts = () =>
    Promise.all(
      ids.map(async (id) => {
        const answer = await page.request.get(`/api/v1/tenants/column/rules/${id}`);
        return answer.ok() ? (await answer.json()).burst_capacity : null;
      }),
    );

  await page.goto('/t/column/plans');
  await settled(page);
  await page.getByRole('gridcell').first().click();
  for (let row = 0; row < ids.length; row++) {
    await page.keyboard.type('20/s');
    await page.keyboard.press('Tab');
    await page.keyboard.press('ControlOrMeta+a');
    await page.keyboard.type('200');
    await page.keyboard.press('Enter');
  }
  await page.getByRole('button', { name: 'Review changes' }).click();
  const review = page.getByRole('dialog', { name: 'Save 3 changes?' });
  await review.getByRole('button', { name: 'Schedule' }).click();
  const dialog = page.getByRole('dialog', { name: 'Schedule 3 changes' });
  await dialog.getByRole('checkbox', { name: 'Take them back' }).check();
  await expect(dialog.getByText(/^At the end each rule gets back what it had/)).toBeVisible();
  await expectAccessible(page);
  await dialog.getByRole('button', { name: 'Schedule', exact: true }).click();
  await expect(dialog).toBeHidden();
  const list = page.getByRole('list', { name: 'Scheduled changes' });
  await expect(list.getByText('3 limits of pro')).toBeVisible();
  await expect(page.getByRole('grid').getByText('scheduled', { exact: true })).toHaveCount(3);
  await list.getByText('Show 3 rules').click();
  await expect(list.getByText('20 per second, bursts to 200')).toHaveCount(3);
  await expectAccessible(page);
  expect(await bursts()).toEqual([100, 100, 100]);
  await list.getByRole('button', { name: 'Cancel' }).click();
  const ask = page.getByRole('dialog', { name: 'Cancel this scheduled change?' });
  await expect(ask.getByText('All 3 rules stay as they are.')).toBeVisible();
  await ask.getByRole('button', { name: 'Cancel change' }).click();
  await expect(list.getByText('Canceled', { exact: true })).toBeVisible();

  await until(async () => {
    const made = await page.request.post('/api/v1/tenants/column/scheduled-changes', {
      data: {
        rules: ids.map((rule_id) => ({ rule_id, version: 1, change: { burst_capacity: 300 } })),
        starts_at: new Date(Date.now() + 2_000).toISOString(),
        ends_at: new Date(Date.now() + 3_600_000).toISOString(),
      },
    });
    return made.status() === 201; // not if the start had passed when it was read
  });
  await expect.poll(bursts).toEqual([300, 300, 300]);
  const headers = { 'If-Match': '*' };
  const [edited, , removed] = ids.map((id) => `/api/v1/tenants/column/rules/${id}`);
  await page.request.patch(edited ?? '', { headers, data: { burst_capacity: 400 } });
  await page.request.delete(removed ?? '', { headers });
  await page.reload();
  await list.getByRole('button', { name: 'End now' }).click();
  await page.getByRole('dialog', { name: 'End this change now?' }).getByRole('button', { name: 'End now' }).click();
  await expect(list.getByText('Partly taken back')).toBeVisible();
  await expect(list.getByText('2 of 3 rules were not taken back.')).toBeVisible();
  expect(await bursts()).toEqual([400, 100, null]);
  await list.getByText('Show 3 rules').first().click();
  await expect(list.getByText(/^Somebody edited the rule meanwhile/)).toBeVisible();
  await expect(list.getByText(/^The rule was removed, so nothing/)).toBeVisible();
  await expectAccessible(page);
});
