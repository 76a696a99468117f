import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { expectAccessible, newPage, settled, signIn, startBrowser } from './browser';
import { demo, type Sluice, startSluice, until } from './sluice';
import { askAll, reports } from './traffic';

let sluice: Sluice;
let browser: Browser;
beforeAll(async () => {
  [sluice, browser] = await Promise.all([startSluice(), startBrowser()]);
});
afterAll(async () => {
  await browser?.close();
  await sluice?.stop();
});

const at = (screen: string) => `/t/${demo.tenant}/${screen}`;

test('live, no row moves: what is new waits for a press, and a pause keeps it', async () => {
  await askAll(sluice, reports('601', 5));
  const { page, complaints, close } = await newPage(browser, sluice);
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
  await page
    .getByText(/^Live\./)
    .first()
    .waitFor();
  const rows = await table.getByRole('row').count();
  await askAll(sluice, reports('602', 5));
  const show = page.getByRole('button', { name: /^\d+ new$/ });
  await show.waitFor();
  expect(await table.getByRole('row').count()).toBe(rows);
  expect(await table.getByText('602').count()).toBe(0);
  await expectAccessible(page);
  await show.click();
  await table.getByText('602').first().waitFor();
  await page.getByRole('button', { name: 'Live' }).click();
  await page.waitForURL((url) => !url.searchParams.has('live'));
  expect(await table.getByText('602').count()).toBeGreaterThan(0);
  expect(complaints).toEqual([]);
  await close();
});

test('a row is a link: another tab opens its panel, and the keyboard walks the rows', async () => {
  const { page, close } = await newPage(browser, sluice);
  await signIn(page);
  await page.goto(`${at('violations')}?user=601`);
  const link = page.getByRole('table', { name: 'Violations' }).getByRole('link', { name: /601/ }).first();
  const [tab] = await Promise.all([
    page.context().waitForEvent('page'),
    link.click({ modifiers: ['ControlOrMeta'] }),
  ]);
  await tab.getByRole('dialog', { name: 'Violation' }).waitFor();
  expect(new URL(tab.url()).searchParams.has('open')).toBe(true);
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
  expect(new URL(other.url()).searchParams.has('open')).toBe(true);
  await link.focus();
  await page.keyboard.press('Enter');
  await page.getByRole('dialog', { name: 'Violation' }).waitFor();
  await close();
});

test('a time is chosen on a chart with the keyboard and with a finger; its legend shows the latest values', async () => {
  const context = await browser.newContext({
    baseURL: sluice.url,
    hasTouch: true,
    viewport: { width: 390, height: 844 },
    reducedMotion: 'reduce',
  });
  const page = await context.newPage();
  await signIn(page);
  await page.goto(at('violations'));
  const chart = page.getByRole('application', { name: /denied over this time/ });
  await chart.waitFor();
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
  await chart.waitFor();
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
  await context.close();
});

test('another tenant’s screens begin empty: nothing of the former one is shown meanwhile', async () => {
  const { page, close } = await newPage(browser, sluice);
  await signIn(page);
  const made = await page.request.post('/api/v1/tenants', {
    data: { slug: 'quiet', name: 'Quiet', default_plan: 'free' },
  });
  expect(made.status()).toBe(201);
  await page.goto(at('overview'));
  const denied = page.getByRole('region', { name: 'Denied most' });
  await denied.getByRole('link', { name: '601' }).waitFor();
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
  await page.getByRole('heading', { name: 'Overview' }).waitFor();
  expect(await page.getByText('601').count()).toBe(0);
  expect(await page.getByRole('region', { name: 'Summary' }).count()).toBe(0);
  answer();
  await page.getByRole('heading', { name: 'Three steps to the first decision' }).waitFor();
  await close();
});

test('answers are compressed, and code to copy knows where checks are asked', async () => {
  const { page, close } = await newPage(browser, sluice);
  await signIn(page);
  const answered = page.waitForResponse(/\/stats\/series/);
  await page.goto(at('overview'));
  expect(await (await answered).headerValue('content-encoding')).toBe('gzip');
  await page.goto(`${at('try')}?user=42`);
  await page.getByText(`${sluice.checkUrl}/v1/check`).waitFor();
  await close();
});
