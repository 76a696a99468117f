import { expect, expectAccessible, settled, signIn, test } from './browser';
import { demo, until } from './sluice';
import { askAll, reports } from './traffic';

test.use({ server: 'live' });

const at = (screen: string) => `/t/${demo.tenant}/${screen}`;

test('live, no row moves: what is new waits for a press, and a pause keeps it', async ({ page, sluice }) => {
  await askAll(sluice, reports('601', 5));
  await signIn(page);
  await page.goto(at('violations'));
  const table = page.getByRole('table', { name: 'Violations' });
  await until(async () => {
    if ((await table.count()) > 0) return true;
    await page.reload();
    await settled(page);
    return false;
  });
  await page.getByRole('button', { name: 'Live' }).click();
  await expect(page.getByText(/^Live\./).first()).toBeVisible();
  const rows = await table.getByRole('row').count();
  await askAll(sluice, reports('602', 5));
  const show = page.getByRole('button', { name: /^\d+ new$/ });
  await expect(show).toBeVisible();
  await expect(table.getByRole('row')).toHaveCount(rows);
  await expect(table.getByText('602')).toHaveCount(0);
  await expectAccessible(page);
  await show.click();
  await expect(table.getByText('602').first()).toBeVisible();
  await page.getByRole('button', { name: 'Live' }).click();
  await page.waitForURL((url) => !url.searchParams.has('live'));
  expect(await table.getByText('602').count()).toBeGreaterThan(0);
});

test('a row is a link: another tab opens its panel, and the keyboard walks the rows', async ({ page }) => {
  await signIn(page);
  await page.goto(`${at('violations')}?user=601`);
  const opened = (url: URL) => url.searchParams.has('open');
  const link = page.getByRole('table', { name: 'Violations' }).getByRole('link', { name: /601/ }).first();
  const [tab] = await Promise.all([page.context().waitForEvent('page'), link.click({ modifiers: ['ControlOrMeta'] })]);
  await tab.waitForURL(opened, { waitUntil: 'commit' });
  // A middle click beside the link is one on the row.
  const [other] = await Promise.all([
    page.context().waitForEvent('page'),
    page
      .getByRole('table', { name: 'Violations' })
      .getByRole('row')
      .nth(1)
      .getByRole('cell')
      .nth(1)
      .click({ button: 'middle' }),
  ]);
  await other.waitForURL(opened, { waitUntil: 'commit' });
  await link.focus();
  await page.keyboard.press('Enter');
  const panel = page.getByRole('dialog', { name: 'Violation' });
  await expect(panel).toBeVisible();
  // A browser without a window does not draw tabs in the background.
  await page.goto(tab.url());
  await expect(panel).toBeVisible();
});

test('a time is chosen on a chart with the keyboard and with a finger; its legend shows the latest values', async ({
  browser,
}) => {
  const context = await browser.newContext({ hasTouch: true, viewport: { width: 390, height: 844 } });
  const page = await context.newPage();
  await signIn(page);
  await page.goto(at('violations'));
  const chart = page.getByRole('application', { name: /were denied/ });
  await expect(chart).toBeVisible();
  await settled(page);
  expect(await page.locator('.chart-at').innerText()).toMatch(/^\d+ \w+, \d\d:\d\d UTC/);
  await chart.focus();
  await page.keyboard.press('ArrowLeft');
  await page.keyboard.press('Enter');
  for (let step = 0; step < 5; step++) await page.keyboard.press('ArrowLeft');
  await page.keyboard.press('Enter');
  await page.waitForURL((url) => url.searchParams.get('range')?.includes('~') ?? false);
  const [from = '', to = ''] = new URL(page.url()).searchParams.get('range')?.split('~') ?? [];
  expect((Date.parse(to) - Date.parse(from)) / 60_000).toBe(6);

  await page.goto(at('violations'));
  await expect(chart).toBeVisible();
  await settled(page);
  const box = await page.locator('.u-over').boundingBox();
  if (!box) throw new Error('the chart has no place');
  const touch = await context.newCDPSession(page);
  const [y, x] = [box.y + box.height / 2, (part: number) => box.x + box.width * part];
  await touch.send('Input.dispatchTouchEvent', { type: 'touchStart', touchPoints: [{ x: x(0.3), y }] });
  for (const part of [0.35, 0.4, 0.5, 0.6]) {
    await touch.send('Input.dispatchTouchEvent', { type: 'touchMove', touchPoints: [{ x: x(part), y }] });
  }
  await touch.send('Input.dispatchTouchEvent', { type: 'touchEnd', touchPoints: [] });
  await page.waitForURL((url) => url.searchParams.get('range')?.includes('~') ?? false);
});

test('another tenant’s screens begin empty: nothing of the former one is shown meanwhile', async ({ page }) => {
  await signIn(page);
  const made = await page.request.post('/api/v1/tenants', {
    data: { slug: 'quiet', name: 'Quiet', default_plan: 'free' },
  });
  expect(made.status()).toBe(201);
  await page.goto(at('overview'));
  const denied = page.getByRole('table', { name: 'Top callers' });
  await expect(denied.getByRole('link', { name: '601' })).toBeVisible();
  // The other tenant's figures are long in coming.
  let answer = () => undefined as undefined;
  const held = new Promise<void>((resolve) => {
    answer = () => resolve() as undefined;
  });
  await page.route('**/api/v1/tenants/quiet/**', async (route) => {
    await held;
    await route.continue();
  });
  await page.goto('/platform/tenants');
  await page.getByRole('table', { name: 'Tenants' }).getByRole('link', { name: 'Quiet' }).click();
  await expect(page.getByRole('heading', { name: 'Overview' })).toBeVisible();
  await expect(page.getByText('601')).toHaveCount(0);
  await expect(page.getByRole('region', { name: 'Summary' })).toHaveCount(0);
  answer();
  await expect(page.getByRole('heading', { name: 'Get started' })).toBeVisible();
});

test('answers are compressed, and code to copy knows where checks are asked', async ({ page, sluice }) => {
  await signIn(page);
  const answered = page.waitForResponse(/\/stats\/series/);
  await page.goto(at('overview'));
  expect(await (await answered).headerValue('content-encoding')).toBe('gzip');
  await page.goto(`${at('try')}?user=42`);
  await expect(page.getByText(`${sluice.checkUrl}/v1/check`)).toBeVisible();
});
