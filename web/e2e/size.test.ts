import type { CDPSession } from '@playwright/test';
import { expect, settled, signIn, test } from './browser';
import { demo } from './sluice';
import { ordinaryTraffic } from './traffic';

const budgets = [
  { screen: 'overview', script: 330, style: 31, font: 50, data: 24, files: 15, requests: 42 },
  { screen: 'violations', script: 345, style: 31, font: 50, data: 12, files: 16, requests: 24 },
];

interface Sent {
  type: string;
  path: string;
  bytes: number;
}

async function recorded(cdp: CDPSession): Promise<Sent[]> {
  const sent = new Map<string, Sent>();
  await cdp.send('Network.enable');
  cdp.on('Network.requestWillBeSent', ({ requestId, type, request }) =>
    sent.set(requestId, { type: type ?? '', path: new URL(request.url).pathname, bytes: 0 }),
  );
  const all: Sent[] = [];
  cdp.on('Network.loadingFinished', ({ requestId, encodedDataLength }) => {
    const one = sent.get(requestId);
    if (one) all.push({ ...one, bytes: encodedDataLength });
  });
  return all;
}

for (const { screen, ...budget } of budgets) {
  test(`the first load of ${screen} keeps its budget`, async ({ page, sluice, newProfile }) => {
    await ordinaryTraffic(sluice);
    await signIn(page);
    const fresh = await newProfile();
    const context = fresh.context();
    await context.addCookies(await page.context().cookies());
    await fresh.addInitScript(() => {
      // Repeated requests do not belong to the first load.
      globalThis.setInterval = (() => 0) as unknown as typeof setInterval;
    });
    const sent = await recorded(await context.newCDPSession(fresh));
    await fresh.goto(`${sluice.url}/t/${demo.tenant}/${screen}`);
    await settled(fresh);
    await fresh.locator('.uplot').first().waitFor(); // the chart is the last that arrives

    const kilobytes = (...types: string[]) =>
      sent.filter(({ type }) => types.includes(type)).reduce((sum, { bytes }) => sum + bytes, 0) / 1000;
    const used = {
      script: kilobytes('Script'),
      style: kilobytes('Stylesheet'),
      font: kilobytes('Font'),
      data: kilobytes('Fetch'),
      files: sent.filter(({ type }) => type !== 'Fetch').length,
      requests: sent.length,
    };
    const words = Object.entries(used).map(([name, value]) => `${name} ${Math.round(value)}`);
    process.stdout.write(`${screen}: ${words.join(', ')}\n`);
    const list = sent.map(({ type, path, bytes }) => `${type} ${bytes} ${path}`).join('\n');
    for (const [name, most] of Object.entries(budget)) {
      expect.soft(used[name as keyof typeof used], `${name}\n${list}`).toBeLessThanOrEqual(most);
    }
  });
}

test('the code of a screen arrives beside the entry, not after it has run', async ({ page }) => {
  await signIn(page);
  const code = page.waitForRequest(/\/assets\/Violations-[^/]+\.js$/);
  await page.route(/\/assets\/index-[^/]+\.js$/, async (route) => {
    await code;
    await route.continue();
  });
  await page.goto(`/t/${demo.tenant}/violations`);
  await expect(page.getByRole('search', { name: 'Filters' })).toBeVisible();
});

test('the first data of a rule are asked for beside the session, not after it', async ({ page }) => {
  await signIn(page);
  const data = page.waitForRequest(/\/rules\/1$/);
  await page.route(/\/api\/v1\/session$/, async (route) => {
    await data;
    await route.continue();
  });
  await page.goto(`/t/${demo.tenant}/rules/1`);
  await expect(
    page.getByRole('group', { name: 'Traffic' }).or(page.getByRole('radiogroup', { name: 'Traffic' })),
  ).toBeVisible();
});

test('a chart that is far below is drawn when it comes near', async ({ page }) => {
  await page.setViewportSize({ width: 390, height: 844 });
  await signIn(page);
  await page.goto(`/t/${demo.tenant}/rules/1`);
  const chart = page.getByRole('radiogroup', { name: 'Traffic' });
  await expect(chart).toBeAttached();
  await settled(page);
  await expect(page.locator('.uplot')).toHaveCount(0);
  await chart.scrollIntoViewIfNeeded();
  await expect(page.locator('.uplot').first()).toBeVisible();
});
