import type { Page } from '@playwright/test';
import { expect, expectAccessible, settled, signIn, test } from './browser';
import { screens } from './screens';
import { demo } from './sluice';
import { ordinaryTraffic } from './traffic';

test.use({ viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true, server: 'phone' });

test('a limit is raised with a finger', async ({ page }) => {
  await signIn(page);
  await page.goto(`/t/${demo.tenant}/plans`);
  await settled(page);
  const cell = page.getByRole('row').nth(1).locator('td[data-plan="pro"]');
  await cell.tap();
  await cell.getByLabel(/^Rate of/).fill('300/s');
  await expectAccessible(page);
  await page.getByRole('heading', { name: 'Plans', exact: true }).tap(); // leaves the cell
  await page.getByRole('button', { name: 'Review changes' }).tap();
  await expect(page.getByRole('dialog').getByText(/300 per second/)).toBeVisible();
  await page.getByRole('button', { name: 'Save', exact: true }).tap();
  await expect(page.getByText(/1 change saved/)).toBeVisible();
});

test('plans of a rule stand below each other, and the last of them is edited in sight', async ({ page }) => {
  await signIn(page);
  await page.goto(`/t/${demo.tenant}/plans`);
  await settled(page);
  const grid = page.getByRole('grid', { name: 'Limits by plan' });
  const clipped = await grid.evaluate(({ parentElement: around }) =>
    around ? around.scrollHeight - around.clientHeight + around.scrollWidth - around.clientWidth : 0,
  );
  expect(clipped).toBe(0);
  const row = grid.getByRole('row').last();
  for (const plan of ['free', 'enterprise']) {
    const cell = row.locator(`td[data-plan="${plan}"]`);
    await cell.evaluate((one) => one.scrollIntoView({ block: 'center' }));
    await cell.tap();
    const burst = cell.getByLabel(/^Burst of/);
    await expect(burst).toBeInViewport({ ratio: 1 });
    const isFree = await burst.evaluate((field) => {
      const { left, bottom } = field.getBoundingClientRect();
      return document.elementFromPoint(left + 8, bottom - 4) === field;
    });
    expect(isFree, plan).toBe(true);
    await cell.getByLabel(/^Rate of/).fill('5/min');
    await page.keyboard.press('Enter');
  }
  await expectAccessible(page);
});

test('the filters of violations fold away', async ({ page }) => {
  await signIn(page);
  await page.goto(`/t/${demo.tenant}/violations?user=42`);
  await settled(page);
  const filters = page.getByRole('search', { name: 'Filters' });
  await expect(filters.getByLabel('User', { exact: true })).toBeHidden();
  await filters.getByRole('button', { name: 'Filters (1)' }).tap();
  await expect(filters.getByLabel('User', { exact: true })).toHaveValue('42');
  await expectAccessible(page);
});

test('leaving the draft of a rule asks first', async ({ page }) => {
  await signIn(page);
  await page.goto(`/t/${demo.tenant}/rules/new`);
  await page.getByLabel('Name', { exact: true }).fill('draft');
  await page.getByRole('button', { name: 'Menu' }).tap();
  const overview = page.getByRole('link', { name: 'Overview', exact: true });
  await overview.tap();
  const question = page.getByRole('dialog', { name: 'Leave without saving?' });
  await expect(question).toBeVisible();
  await expectAccessible(page);
  await question.getByRole('button', { name: 'Stay' }).tap();
  await expect(page.getByLabel('Name', { exact: true })).toHaveValue('draft');
  await overview.tap(); // the menu is still open
  await question.getByRole('button', { name: 'Leave' }).tap();
  await expect(page).toHaveURL(/\/overview$/);
});

test('the menu closes when a link in it is followed, also to the screen that is shown', async ({ page }) => {
  await signIn(page);
  await page.goto(`/t/${demo.tenant}/violations?user=42`);
  const menu = page.getByRole('dialog', { name: 'Menu' });
  for (const name of ['Violations', 'Violations', 'Rules']) {
    await page.getByRole('button', { name: 'Menu' }).tap();
    await menu.getByRole('link', { name, exact: true }).tap();
    await expect(menu).toBeHidden();
    await expect(page).toHaveURL(new RegExp(`/${name.toLowerCase()}$`));
  }
});

test('the answer of a tried check comes into sight, and the screen said before that nothing is sent', async ({
  page,
}) => {
  await page.setViewportSize({ width: 390, height: 600 }); // with the browser's bars and a keyboard that was open
  await signIn(page);
  await page.goto(`/t/${demo.tenant}/try`);
  await expect(page.getByText('A preview: it takes no tokens and is not counted.')).toBeInViewport();
  await page.getByLabel('User', { exact: true }).fill('8841');
  await page.getByRole('button', { name: 'Run check' }).tap();
  await expect(page.getByRole('heading', { name: 'Allowed' })).toBeInViewport();
  await expectAccessible(page);
});

function cutTexts(page: Page): Promise<(string | null)[]> {
  return page.locator('main tbody td').evaluateAll(
    (cells) =>
      cells
        .filter((cell) => cell.checkVisibility() && cell.scrollWidth > cell.clientWidth)
        .map((cell) => cell.textContent)
        .filter(Boolean), // a button may be wider than its cell
  );
}

test('rules and overrides are read whole', async ({ page }) => {
  await signIn(page);
  for (const name of ['rules', 'overrides']) {
    await page.goto(`/t/${demo.tenant}/${name}`);
    await expect(page.locator('main tbody tr').first()).toBeVisible();
    expect.soft(await cutTexts(page), name).toEqual([]);
    await expectAccessible(page);
  }
});

test('so are 300 rules, of which only the visible ones are drawn', async ({ page }) => {
  await signIn(page);
  await page.request.post('/api/v1/tenants', { data: { slug: 'long', name: 'Long' } });
  const rules = Array.from({ length: 300 }, (_, i) => {
    const pattern = `user:{user_id}:endpoint:/api/${'a-long-name/'.repeat(i % 4)}${100 + i}`;
    return `  - {key_pattern: "${pattern}", rate: 10/second, burst_capacity: 500}`;
  });
  const imported = await page.request.post('/api/v1/tenants/long/import', {
    headers: { 'Content-Type': 'application/yaml' },
    data: ['rules:', ...rules].join('\n'),
  });
  expect(imported.status(), await imported.text()).toBe(200);
  await page.goto('/t/long/rules');
  const table = page.getByRole('table', { name: 'Rules' });
  await expect(table).toHaveAttribute('aria-rowcount', '301');
  expect(await cutTexts(page)).toEqual([]);
  await expectAccessible(page);
  expect(await table.getByRole('row').count()).toBeLessThan(100);

  const row = (index: number) => table.locator(`[data-index="${index}"]`);
  await row(0).locator('[data-opener]').focus();
  for (const [key, index] of [
    ['End', 299],
    ['PageUp', 287],
    ['Home', 0],
  ] as const) {
    await page.keyboard.press(key);
    await expect(row(index).locator('[data-opener]')).toBeFocused();
    await expect(row(index)).toBeInViewport({ ratio: 1 });
    expect(await cutTexts(page), key).toEqual([]);
  }
});

/** The fields and buttons that a finger misses. A box to tick is as tall as its label. */
function tooSmall(): string[] {
  const all = document.querySelectorAll<HTMLElement>(
    'main :is(button, select, textarea, input:not([type=checkbox], [type=radio], [type=file])), main ' +
      '.mantine-SegmentedControl-label',
  );
  return [...all]
    .filter((one) => one.checkVisibility({ visibilityProperty: true, opacityProperty: true }))
    .map((one) => one.closest<HTMLElement>('.field') ?? one) // a password's field is around its input
    .filter((one) => one.offsetWidth > 1 && one.offsetHeight < 40)
    .map((one) => `${one.offsetHeight} px: ${one.outerHTML.slice(0, 160)}`);
}

test('no screen is wider than a phone, and fingers hit what they aim at', async ({ page, sluice }) => {
  test.slow();
  await ordinaryTraffic(sluice);
  await signIn(page);
  for (const { name, path } of screens) {
    await page.goto(path);
    await expect(page.locator('main h1').first()).toBeVisible();
    await expect(page.getByRole('status', { name: 'Loading' })).toHaveCount(0);
    const width = await page.evaluate(() => document.documentElement.scrollWidth);
    expect.soft(width, name).toBeLessThanOrEqual(390);
    expect.soft(await page.evaluate(tooSmall), `${name}: fields and buttons below 40 px`).toEqual([]);
  }
});
