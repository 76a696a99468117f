import type { Page } from '@playwright/test';
import { expect, settled, signIn, test } from './browser';
import { demo } from './sluice';

const at = (screen: string) => `/t/${demo.tenant}/${screen}`;
const reason = 'a migration week of the customer, ticket 12345, until the end of next month';

async function furnish(page: Page): Promise<void> {
  const api = `/api/v1/tenants/${demo.tenant}`;
  const send = async (method: string, path: string, data: object, headers = {}) => {
    const answer = await page.request.fetch(`${api}/${path}`, { method, data, headers });
    expect(answer.ok(), await answer.text()).toBe(true);
  };
  const rules = await (await page.request.get(`${api}/rules`)).json();
  const { rule_id } = rules.items.find(({ key_pattern }: { key_pattern: string }) => /reports/.test(key_pattern));
  await send('POST', 'alerts', {
    name: 'Many denials of reports',
    rule_id,
    per: 'subject',
    threshold: 1000,
    window_minutes: 5,
    url: 'https://example.com/hook',
  });
  await send('POST', 'api-keys', {
    name: 'billing-worker-in-frankfurt',
    permissions: ['check', 'explain', 'refund', 'report', 'lease', 'read'],
    networks: ['203.0.113.0/24', '2001:db8::/32'],
  });
  await send(
    'PUT',
    `rules/${rule_id}/overrides/a-customer-with-a-very-long-identifier-eu-west-1`,
    { rate_per_second: 0.5, rate_unit: 'minute', burst_capacity: 1500, reason, expires_at: null },
    { 'If-None-Match': '*' },
  );
}

const cutCells = (page: Page) =>
  page
    .locator('td')
    .evaluateAll((cells) =>
      cells
        .filter((cell) =>
          [cell, ...cell.querySelectorAll('*')].some(
            (one) => one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).overflowX !== 'visible',
          ),
        )
        .map(({ textContent }) => textContent),
    );

test('lists of alerts, keys and overrides show all of a row, wide and narrow', async ({ page }) => {
  await signIn(page);
  await furnish(page);
  const shown = {
    'settings/alerts': '1,000 denials by “Each user on /api/reports · all plans”',
    'settings/keys': 'check, explain, refund, report, lease, read',
    overrides: reason,
  };
  for (const viewport of [
    { width: 1280, height: 800 },
    { width: 390, height: 844 },
  ]) {
    await page.setViewportSize(viewport);
    for (const [screen, text] of Object.entries(shown)) {
      await page.goto(at(screen));
      await expect(page.getByText(text).first(), `${screen}, ${viewport.width} wide`).toBeVisible();
      await settled(page);
      expect(await cutCells(page), `${screen}, ${viewport.width} wide`).toEqual([]);
      const last = page.getByRole('table').getByRole('button').last();
      await expect(last).toBeInViewport({ ratio: 1 });
    }
  }
});

test('the buttons of a long dialog are in sight on a phone', async ({ page }) => {
  await page.setViewportSize({ width: 390, height: 844 });
  await signIn(page);
  for (const { screen, open, save } of [
    { screen: 'settings/keys', open: 'Create key', save: 'Create key' },
    { screen: 'overrides', open: 'New override', save: 'Save override' },
  ]) {
    await page.goto(at(screen));
    await page.getByRole('button', { name: open }).first().click();
    const dialog = page.getByRole('dialog');
    await expect(dialog.getByRole('button', { name: save })).toBeInViewport({ ratio: 1 });
  }
});
