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

test('the answer of a tried check comes into sight, and the screen said before that nothing is sent', async ({
  page,
}) => {
  await page.setViewportSize({ width: 390, height: 600 }); // with the browser's bars and a keyboard that was open
  await signIn(page);
  await page.goto(`/t/${demo.tenant}/try`);
  await expect(page.getByText('Nothing is sent: it takes no tokens and is not counted.')).toBeInViewport();
  await page.getByLabel('User', { exact: true }).fill('8841');
  await page.getByRole('button', { name: 'Run check' }).tap();
  await expect(page.getByRole('heading', { name: 'Allowed' })).toBeInViewport();
  await expectAccessible(page);
});

test('rules and overrides are read whole', async ({ page }) => {
  await signIn(page);
  for (const name of ['rules', 'overrides']) {
    await page.goto(`/t/${demo.tenant}/${name}`);
    await expect(page.locator('main tbody tr').first()).toBeVisible();
    const cut = await page.locator('main tbody td').evaluateAll(
      (cells) =>
        cells
          .filter((cell) => cell.checkVisibility() && cell.scrollWidth > cell.clientWidth)
          .map((cell) => cell.textContent)
          .filter(Boolean), // a button may be wider than its cell
    );
    expect.soft(cut, name).toEqual([]);
    await expectAccessible(page);
  }
});

/** The fields and buttons that a finger misses. A box to tick is as tall as its label. */
function tooSmall(): string[] {
  const all = document.querySelectorAll<HTMLElement>(
    'main :is(button, select, textarea, input:not([type=checkbox], [type=radio], [type=file])), main .mantine-SegmentedControl-label',
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
