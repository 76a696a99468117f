import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { expectAccessible, newPage, settled, signIn, startBrowser } from './browser';
import { demo, type Sluice, startSluice, until } from './sluice';

let sluice: Sluice;
let browser: Browser;
beforeAll(async () => {
  [sluice, browser] = await Promise.all([startSluice(), startBrowser()]);
});
afterAll(async () => {
  await browser?.close();
  await sluice?.stop();
});

/** A click on the page beside an open dialog. */
const clickBeside = (page: Page) => page.mouse.click(5, 400);

test('Enter in a dialog that asks about revoking revokes nothing', async () => {
  const { page, complaints, close } = await newPage(browser, sluice);
  await signIn(page);
  await page.goto(`/t/${demo.tenant}/settings/keys`);
  await page.getByRole('button', { name: 'Create key' }).click();
  await page.getByLabel('Name').fill('gateway');
  await page.getByRole('dialog').getByRole('button', { name: 'Create' }).click();
  await page.getByRole('button', { name: 'Done' }).click();
  await page.getByRole('button', { name: 'Actions of gateway' }).click();
  await page.getByRole('menuitem', { name: 'Revoke …' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByRole('button', { name: 'Cancel' }).and(page.locator(':focus')).waitFor();
  await page.keyboard.press('Enter');
  await dialog.waitFor({ state: 'hidden' });
  await page.getByRole('row', { name: /gateway.*active/ }).waitFor();
  expect(complaints).toEqual([]);
  await close();
});

test('a failure that comes after Escape is still seen', async () => {
  const { page, close } = await newPage(browser, sluice);
  await signIn(page);
  await page.goto(`/t/${demo.tenant}/settings/keys`);
  let refuse = () => {};
  const refused = new Promise<void>((resolve) => (refuse = resolve));
  await page.route('**/revoke', async (route) => {
    await refused;
    await route.fulfill({
      status: 503,
      contentType: 'application/problem+json',
      body: JSON.stringify({
        type: 'urn:sluice:problem:unavailable',
        title: 'Unavailable',
        status: 503,
        detail: 'The database does not answer.',
        request_id: 'r',
      }),
    });
  });
  await page
    .getByRole('button', { name: /^Actions of / })
    .first()
    .click();
  await page.getByRole('menuitem', { name: 'Revoke …' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByRole('button', { name: 'Revoke key' }).click();
  await page.keyboard.press('Escape');
  await clickBeside(page);
  refuse();
  await dialog.getByRole('alert').getByText('The database does not answer.').waitFor();
  await close();
});

test('what was typed into a dialog survives a click beside it, and Escape asks', async () => {
  const { page, complaints, close } = await newPage(browser, sluice);
  await signIn(page);
  await page.goto(`/t/${demo.tenant}/settings/members`);
  await page.getByRole('button', { name: 'Invite' }).click();
  const email = page.getByLabel('E-mail');
  await email.fill('grace@example.com');
  await clickBeside(page);
  expect(await email.inputValue()).toBe('grace@example.com');
  await page.keyboard.press('Escape');
  await page.getByText('Discard what you typed?').waitFor();
  await expectAccessible(page);
  await page.getByRole('button', { name: 'Keep editing' }).click();
  expect(await email.inputValue()).toBe('grace@example.com');
  // The least role is the one that an invitation gives unless another is chosen.
  expect(await page.getByLabel('Role', { exact: true }).inputValue()).toBe('viewer');

  await page.getByRole('button', { name: 'Make the link' }).click();
  const link = page.getByRole('dialog', { name: 'Send this link to grace@example.com' });
  await link.getByText('/invitation#').waitFor();
  await page.keyboard.press('Escape');
  await clickBeside(page);
  await link.getByText('/invitation#').waitFor();
  await expectAccessible(page);
  await link.getByRole('button', { name: 'Done' }).click();
  await link.waitFor({ state: 'hidden' });

  await page.getByRole('button', { name: 'Invite' }).click();
  await clickBeside(page); // nothing typed, nothing to lose
  await page.getByRole('dialog').waitFor({ state: 'hidden' });
  expect(complaints).toEqual([]);
  await close();
});

test('back leaves a panel, however many rows were walked in it', async () => {
  const { page, close } = await newPage(browser, sluice);
  await signIn(page);
  for (const name of ['One', 'Two', 'Three']) {
    await page.request.patch(`/api/v1/tenants/${demo.tenant}`, {
      headers: { 'If-Match': '*' },
      data: { name },
    });
  }
  await page.goto(`/t/${demo.tenant}/rules`);
  await settled(page);
  await page.getByRole('link', { name: 'Settings' }).click();
  await page.getByRole('link', { name: 'Audit log' }).click();
  await page.getByRole('row').nth(1).click();
  await page.getByRole('dialog').waitFor();
  const first = page.url();
  await page.getByRole('button', { name: 'Close' }).click();
  await page.getByRole('dialog').waitFor({ state: 'hidden' });
  await page.getByRole('row').nth(2).click();
  await until(async () => page.url().includes('entry=') && page.url() !== first);
  await page.goBack();
  await page.getByRole('dialog').waitFor({ state: 'hidden' });
  expect(page.url()).not.toContain('entry=');
  expect(page.url()).toContain('/settings/audit');
  await page.goBack();
  await until(async () => !page.url().includes('/settings/audit'));
  await close();
});

test('the search of the rules keeps the caret where one types', async () => {
  const { page, close } = await newPage(browser, sluice);
  await signIn(page);
  await page.goto(`/t/${demo.tenant}/rules?q=seah`);
  const search = page.getByRole('textbox', { name: 'Search' });
  await search.focus();
  await search.press('Home');
  await search.press('ArrowRight');
  await search.press('ArrowRight');
  await search.press('ArrowRight');
  await search.pressSequentially('rc', { delay: 30 });
  expect(await search.inputValue()).toBe('search');
  await until(async () => page.url().endsWith('q=search'));
  expect(await search.inputValue()).toBe('search');
  await close();
});

test('a platform admin finds a new tenant in the switcher and in the palette', async () => {
  const { page, complaints, close } = await newPage(browser, sluice);
  await signIn(page);
  const made = await page.request.post('/api/v1/tenants', { data: { slug: 'zenith', name: 'Zenith Labs' } });
  expect(made.status()).toBe(201);
  await page.goto(`/t/${demo.tenant}/rules`);
  await settled(page);
  await page.getByRole('button', { name: /^Tenant:/ }).click();
  await page.getByLabel('Find a tenant').fill('zen');
  await page.getByRole('option', { name: /Zenith Labs/ }).waitFor();
  await expectAccessible(page);
  await page.getByLabel('Find a tenant').press('Enter');
  await page.waitForURL('**/t/zenith/overview');
  await page.getByRole('button', { name: /Zenith Labs/ }).waitFor();

  await page.goto(`/t/${demo.tenant}/try`);
  await settled(page);
  await page.keyboard.press('Control+k');
  await page.getByRole('textbox', { name: 'Search' }).fill('zenith');
  const found = page.getByRole('button', { name: /Zenith Labs/ }).last();
  await found.waitFor();
  await page.keyboard.press('ArrowDown');
  const selected = page.locator('[data-selected]').first();
  const [text, background] = await selected.evaluate((element) => {
    const style = getComputedStyle(element);
    return [style.color, style.backgroundColor];
  });
  expect(contrast(String(text), String(background))).toBeGreaterThan(4.5);
  expect(complaints).toEqual([]);
  await close();
});

/** The contrast ratio of two colours, as WCAG 2.2 defines it. */
function contrast(one: string, other: string): number {
  const luminance = (color: string) => {
    const [r = 0, g = 0, b = 0] = (color.match(/[\d.]+/g) ?? []).slice(0, 3).map((part) => {
      const channel = Number(part) / 255;
      return channel <= 0.04045 ? channel / 12.92 : ((channel + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const [low = 0, high = 0] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}
