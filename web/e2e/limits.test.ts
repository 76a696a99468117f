import type { Locator, Page } from '@playwright/test';
import { expect, expectAccessible, settled, signIn, test } from './browser';
import type { Sluice } from './sluice';
import { newTenant, post } from './tenants';

const perUser = (plan: string | null, perMinute: number, burst_capacity = perMinute) => ({
  key_pattern: 'user:{user_id}',
  plan,
  rate_per_second: perMinute / 60,
  rate_unit: 'minute',
  burst_capacity,
});

function cell(page: Page, words: string, plan: string): Locator {
  return page.getByRole('row', { name: words }).locator(`td[data-plan="${plan}"]`);
}

async function passed(sluice: Sluice, key: string, plan: string, count: number, cost = 1): Promise<number> {
  const checks = Array.from({ length: count }, () => ({ user_id: 'anna', ...(plan && { plan }), cost }));
  const answer = await fetch(`${sluice.checkUrl}/v1/check/batch`, {
    method: 'POST',
    headers: { Authorization: `Bearer ${key}`, 'Content-Type': 'application/json' },
    body: JSON.stringify({ checks }),
  });
  if (!answer.ok) return 0; // the key is not known yet
  const { results } = (await answer.json()) as { results: { status: number }[] };
  return results.filter(({ status }) => status === 200).length;
}

test('a limit looser than that of all plans is said to be held, and one press makes it true', async ({
  page,
  sluice,
}) => {
  await signIn(page);
  await newTenant(page, 'held', ['free', 'pro'], [perUser(null, 6)]);
  const { secret } = await post(page.request, 'tenants/held/api-keys', {
    name: 'ci',
    permissions: ['check'],
  });
  await page.goto('/t/held/plans');
  await settled(page);
  await expect(cell(page, 'Each user', 'free').getByText('6/min')).toBeVisible();
  await cell(page, 'Each user', 'pro').click();
  await page.keyboard.type('60/min');
  await page.keyboard.press('Tab');
  await page.keyboard.type('60');
  await page.keyboard.press('Enter');
  await expect(cell(page, 'Each user', 'pro').getByText(/Limited to 6\/min, burst 6 by All plans/)).toBeVisible();
  await page.getByRole('button', { name: 'Review changes' }).click();
  const dialog = page.getByRole('dialog');
  await expect(dialog.getByText(/pro is limited to 6\/min, burst 6/)).toBeVisible();
  await expect(dialog.getByText('60 per minute, bursts to 60')).toBeVisible();
  await expectAccessible(page);
  await dialog.getByRole('button', { name: 'Give each plan its own limit', exact: true }).click();
  await expect(dialog.getByText('Save 3 changes?')).toBeVisible();
  await expect(dialog.getByText(/users without an assigned plan are no longer limited/)).toBeVisible();
  await dialog.getByRole('button', { name: 'Save', exact: true }).click();
  await expect(page.getByText(/3 changes saved/)).toBeVisible();
  await expect.poll(() => passed(sluice, secret, 'pro', 30)).toBeGreaterThan(6);
  expect(await passed(sluice, secret, 'free', 30)).toBe(6);
});

test('fifty plans leave room; a click and a key edit; what is no limit stays; a new row has the focus', async ({
  page,
}) => {
  await signIn(page);
  const plans = Array.from({ length: 50 }, (_, at) => `plan-${String(at).padStart(2, '0')}`);
  await newTenant(page, 'many', plans, [perUser(null, 600), perUser('plan-00', 60)]);
  await page.goto('/t/many/plans');
  await settled(page);
  const corner = await page.getByRole('columnheader', { name: 'Rule', exact: true }).boundingBox();
  expect(corner?.width).toBeLessThanOrEqual(280);

  await cell(page, 'Each user', 'plan-01').click();
  await page.keyboard.type('5o/s');
  await cell(page, 'Each user', 'plan-02').click();
  await expect(cell(page, 'Each user', 'plan-01').getByText('5o/s')).toBeVisible();
  await expectAccessible(page);
  await expect(page.getByRole('button', { name: 'Review changes' })).toBeDisabled();
  await page.keyboard.type('0,5/s'); // the cell that was clicked is edited
  await page.keyboard.press('Enter');
  await expect(cell(page, 'Each user', 'plan-02').getByText('0.5/s')).toBeVisible();
  await cell(page, 'Each user', 'plan-01').click();
  await page.keyboard.press('Enter');
  await page.keyboard.press('Escape');
  await expect(page.getByText('1 change not saved')).toBeVisible();

  await page.getByRole('button', { name: 'Add rule' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Add rule' }).click();
  await page.keyboard.type('100/d');
  await page.keyboard.press('Enter');
  await expect(page.getByText('2 changes not saved')).toBeVisible();
});

test('an override is offered of the rule that denied, also of another plan, and lets the user pass', async ({
  page,
  sluice,
}) => {
  await signIn(page);
  await newTenant(page, 'other', ['free', 'pro'], [perUser('free', 6)]);
  const { rule_id } = await post(page.request, 'tenants/other/rules', perUser('pro', 7));
  const { secret } = await post(page.request, 'tenants/other/api-keys', {
    name: 'ci',
    permissions: ['check'],
  });
  await expect.poll(() => passed(sluice, secret, 'pro', 1)).toBe(1);
  expect(await passed(sluice, secret, 'pro', 1, 8)).toBe(0); // more than the bucket of pro holds
  await page.goto(`/t/other/users/anna?override=${rule_id}`);
  const dialog = page.getByRole('dialog', { name: 'New override for user anna' });
  await dialog.getByLabel('Reason').fill('ticket 1234');
  await expect(dialog.getByLabel('Rule')).toHaveValue(String(rule_id));
  await dialog.getByText('10 times').click();
  await expect(dialog.getByText(/70 per minute, bursts to 70/)).toBeVisible();
  await expect(dialog.getByText(/applies only to checks on the plan pro/)).toBeVisible();
  await expectAccessible(page);
  await dialog.getByRole('button', { name: 'Save override' }).click();
  await expect(page.getByText(/Override saved/)).toBeVisible();
  await expect.poll(() => passed(sluice, secret, 'pro', 1, 8)).toBe(1);
});

test('a promotion is undone with its candidate, and a live rule is taken out of force from its menu', async ({
  page,
}) => {
  await signIn(page);
  await newTenant(page, 'promoted', [], [perUser(null, 60)]);
  const candidate = await post(page.request, 'tenants/promoted/rules', {
    ...perUser(null, 30),
    name: 'candidate',
    mode: 'shadow',
  });
  await page.goto(`/t/promoted/rules/${candidate.rule_id}`);
  await page.getByRole('button', { name: 'Enforce', exact: true }).click();
  await expect(page.getByText(/this shadow rule is removed/)).toBeVisible();
  await page.getByRole('dialog').getByRole('button', { name: 'Enforce' }).click();
  await page.waitForURL((url) => !url.pathname.endsWith(`/${candidate.rule_id}`));
  await page.getByRole('alert').getByRole('button', { name: 'Undo' }).click();
  await expect(page.getByRole('dialog').getByText(/Restores/)).toBeVisible();
  await page.getByRole('dialog').getByRole('button', { name: 'Undo' }).click();
  await expect(page.getByRole('button', { name: 'Redo' })).toBeVisible();
  const path = '/api/v1/tenants/promoted/rules';
  const back = await page.request.get(`${path}/${candidate.rule_id}`);
  expect(await back.json()).toMatchObject({ mode: 'shadow', burst_capacity: 30 });

  await page.getByRole('button', { name: 'More' }).click();
  await page.getByRole('menuitem', { name: 'Stop enforcing (shadow mode)' }).click();
  await expect(page.getByText(/denies nothing/)).toBeVisible();
  await expectAccessible(page);
  await page.getByRole('dialog').getByRole('button', { name: 'Stop enforcing' }).click();
  await expect(page.getByText('In shadow mode within 2 s')).toBeVisible();
  const { items } = await (await page.request.get(`${path}?mode=shadow`)).json();
  expect(items).toHaveLength(2);
});

test('a quota shows its use in the present window, and who crossed a share of it', async ({ page, sluice }) => {
  await signIn(page);
  const quota = { key_pattern: 'user:{user_id}', algorithm: 'fixed_window', burst_capacity: 100 };
  await newTenant(
    page,
    'quotas',
    [],
    [
      { ...quota, name: 'monthly', window: 'month', window_zone: 'Europe/Berlin', notify_at: [80, 100] },
      { ...quota, name: 'half', window: 'day', burst_capacity: 50, mode: 'shadow', notify_at: [100] },
      perUser(null, 6000, 1000),
    ],
  );
  const { secret } = await post(page.request, 'tenants/quotas/api-keys', {
    name: 'ci',
    permissions: ['check'],
  });
  await expect.poll(() => passed(sluice, secret, '', 1)).toBe(1);
  expect(await passed(sluice, secret, '', 84)).toBe(84);

  await page.goto('/t/quotas/users/anna');
  const quotas = page.getByRole('list', { name: 'Quotas' });
  await expect(quotas.getByRole('listitem').first()).toContainText('85 of 100 used');
  await expect(quotas.getByRole('listitem').first()).toContainText('00:00 Europe/Berlin');
  await expect(quotas.getByRole('listitem').last()).toContainText('50 of 50 used, would deny');
  const crossings = page.getByRole('list', { name: 'Crossings' });
  await expect(crossings).toContainText(/80.% of/);
  await expect(crossings.getByRole('listitem')).toHaveCount(2);
  await expect(crossings).toContainText('80 of 100 used; window until');
  await expectAccessible(page);

  expect(await passed(sluice, secret, '', 20)).toBe(15);
  await expect(quotas.getByRole('listitem').first()).toContainText('100 of 100 used, used up');
  await quotas.getByRole('link', { name: /monthly/ }).click();
  await expect(page.getByRole('list', { name: 'Crossings' }).getByRole('listitem')).toHaveCount(2);
  await page.getByRole('list', { name: 'Crossings' }).getByRole('link', { name: 'anna' }).first().click();
  await expect(page.getByRole('heading', { name: 'User anna' })).toBeVisible();
});
