import type { Page } from '@playwright/test';
import { expect, expectAccessible, settled, signIn, test } from './browser';
import { demo, until } from './sluice';
import { askAll, reports } from './traffic';

// The first test wants a tenant without checks.
test.use({ server: 'limited' });

const at = (screen: string) => `/t/${demo.tenant}/${screen}`;
const api = `/api/v1/tenants/${demo.tenant}`;

async function reloadUntil(page: Page, shows: () => Promise<boolean>): Promise<void> {
  await until(async () => {
    await settled(page);
    if (await shows()) return true;
    await page.reload();
    return false;
  });
}

test('a new tenant sees its three steps, and the overview with the first checks', async ({ page, sluice }) => {
  await signIn(page);
  await page.goto(at('overview'));
  await expect(page.getByRole('heading', { name: 'Get started' })).toBeVisible();
  await expectAccessible(page);
  await askAll(sluice, reports('77', 10));
  await expect(page.getByRole('region', { name: 'Summary' })).toBeVisible();
  await expect(page.getByRole('table', { name: 'Top callers' }).getByRole('link', { name: '77' })).toBeVisible();
  await expectAccessible(page);
});

test('why user 42 was limited is found out, and an override that expires lets it pass', async ({ page, sluice }) => {
  const statuses = await askAll(sluice, reports('42', 8));
  expect(statuses.filter((status) => status === 429)).toHaveLength(5);

  await signIn(page);
  await page.goto(at('users'));
  await page.getByLabel('User id').fill('42');
  await page.getByRole('link', { name: /^Open user 42($| )/ }).click();
  const denials = page.getByRole('table', { name: 'Recent denials' });
  await reloadUntil(page, () => denials.getByText('GET /api/reports').first().isVisible());
  await denials.getByText('GET /api/reports').first().click();

  const panel = page.getByRole('dialog', { name: 'Violation' });
  await expect(panel.getByText(/User 42 on free was denied/)).toBeVisible();
  await expect(panel.getByText(/6 per minute, bursts to 3/).first()).toBeVisible();
  await expect(panel.getByText('Tokens left')).toBeVisible();
  await expectAccessible(page);
  await panel.getByRole('link', { name: 'Override limit' }).click();

  const raise = page.getByRole('dialog', { name: 'New override for user 42' });
  await raise.getByText('10 times').click();
  await raise.getByLabel('Reason').fill('their migration, ticket 1234');
  await raise.getByLabel('Duration').selectOption('1 hour');
  await expect(raise.getByText('60 per minute, bursts to 30').first()).toBeVisible();
  await expectAccessible(page);
  await raise.getByRole('button', { name: 'Save override' }).click();
  await expect(raise).toBeHidden();
  // More at once than the bucket held before, however long one waited.
  await expect.poll(async () => (await askAll(sluice, reports('42', 1, 4)))[0]).toBe(200);

  const own = page.getByRole('table', { name: 'Overrides' });
  await expect(own.getByText('their migration, ticket 1234')).toBeVisible();
  await expect(own.getByText(/^in (1.h|5\d.min)/)).toBeVisible();
  const chip = page.getByRole('list', { name: 'Buckets' }).getByText('Override', { exact: true });
  await expect(chip).toBeVisible();
  await expectAccessible(page);

  // The hour is cut to a moment, so that the test need not wait for its end.
  const override = await own.getByRole('link').first().getAttribute('href');
  const rule = override?.split('/').at(-1);
  const headers = { 'If-Match': '*' };
  const limit = { rate_per_second: 1, rate_unit: 'minute', burst_capacity: 30, reason: 'cut' };
  await until(async () => {
    const data = { ...limit, expires_at: new Date(Date.now() + 1500).toISOString() };
    const cut = await page.request.put(`${api}/rules/${rule}/overrides/42`, { headers, data });
    return cut.status() === 200; // not if the moment had passed when it was read
  });
  await expect(own.getByText('Expired')).toBeVisible();
  await expect(chip).toBeHidden();
});

test('a bucket fills up before one’s eyes, and is filled by a press', async ({ page, sluice }) => {
  await signIn(page);
  await page.goto(at('users/301'));
  const drain = () => askAll(sluice, reports('301', 3));
  const meter = page.getByRole('meter', { name: /api\/reports/ });
  const level = async () => Number((await meter.locator('div').getAttribute('style'))?.match(/[\d.]+/)?.[0]);
  // Again and again, because it fills up while the page is drawn.
  await until(async () => (await drain()) && (await meter.count()) > 0 && (await level()) < 50);
  const before = await level();
  await expect.poll(() => level()).toBeGreaterThan(before);
  await page.getByRole('button', { name: /Actions for the bucket of .*reports/ }).click();
  await page.getByRole('menuitem', { name: 'Refill' }).click();
  await drain();
  const filled = page.waitForResponse(/\/buckets\/reset$/);
  await page.getByRole('dialog').getByRole('button', { name: 'Refill' }).click();
  const { tokens_before, tokens_after } = await (await filled).json();
  expect(tokens_before).toBeLessThan(3);
  expect(tokens_after).toBe(3);
  await expect.poll(() => level()).toBe(100);
});

test('violations arrive live, a drag over the chart chooses their time, and back goes back', async ({
  page,
  sluice,
}) => {
  await signIn(page);
  await page.goto(`${at('violations')}?user=501`);
  await page.getByRole('button', { name: 'Live' }).click();
  await expect(page.getByText(/^Live\./).first()).toBeVisible();
  await askAll(sluice, reports('501', 5));
  const table = page.getByRole('table', { name: 'Violations' });
  await expect(table.getByText('501').first()).toBeVisible();
  await expectAccessible(page);

  await page.goto(at('violations'));
  const canvas = page.locator('.u-over');
  await expect(canvas).toBeVisible();
  await settled(page);
  const box = await canvas.boundingBox();
  if (!box) throw new Error('the chart has no place');
  await page.mouse.move(box.x + box.width * 0.5, box.y + 40);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.99, box.y + 40, { steps: 5 });
  await page.mouse.up();
  await page.waitForURL((url) => url.searchParams.get('range')?.includes('~') ?? false);
  await expect(table.getByText('501').first()).toBeVisible();
  await page.goBack();
  await page.waitForURL((url) => !url.search.includes('range'));
});

test('the export holds what the filters match', async ({ page, sluice }) => {
  await askAll(sluice, reports('=cmd', 5));
  await signIn(page);
  await page.goto(`${at('violations')}?user=${encodeURIComponent('=cmd')}`);
  const table = page.getByRole('table', { name: 'Violations' });
  await reloadUntil(page, () => table.isVisible());
  await page.getByRole('button', { name: 'Export' }).click();
  await page.getByRole('menuitem', { name: /CSV/ }).click();
  await page.waitForURL((url) => url.search.includes('export='));
  await page.reload();
  const file = page.getByRole('dialog', { name: 'Export ready' }).getByRole('link', { name: 'Download' });
  const [download] = await Promise.all([page.waitForEvent('download'), file.click()]);
  const chunks: Buffer[] = [];
  for await (const chunk of await download.createReadStream()) chunks.push(chunk as Buffer);
  const lines = Buffer.concat(chunks).toString().trim().split('\n');
  expect(lines[0]).toContain('violation_id');
  expect(lines.length).toBeGreaterThan(1);
  // A spreadsheet must not take a user's name for a formula.
  expect(lines.slice(1).every((line) => line.includes("'=cmd"))).toBe(true);
});
