import type { Page } from '@playwright/test';
import { expect, expectAccessible, settled, signIn, test } from './browser';
import { demo } from './sluice';

const clickBeside = (page: Page) => page.mouse.click(5, 400);

test('Enter in a dialog that asks about revoking revokes nothing', async ({ page }) => {
  await signIn(page);
  await page.goto(`/t/${demo.tenant}/settings/keys`);
  await page.getByRole('button', { name: 'Create key' }).click();
  await page.getByLabel('Name').fill('gateway');
  await page.getByRole('dialog').getByRole('button', { name: 'Create' }).click();
  await page.getByRole('button', { name: 'Done' }).click();
  await page.getByRole('button', { name: 'Actions of gateway' }).click();
  await page.getByRole('menuitem', { name: 'Revoke …' }).click();
  const dialog = page.getByRole('dialog');
  await expect(dialog.getByRole('button', { name: 'Cancel' }).and(page.locator(':focus'))).toBeVisible();
  await page.keyboard.press('Enter');
  await expect(dialog).toBeHidden();
  await expect(page.getByRole('row', { name: /gateway.*Active/ })).toBeVisible();
});

test('a failure that comes after Escape is still seen', async ({ page }) => {
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
  await expect(dialog.getByRole('alert').getByText('The database does not answer.')).toBeVisible();
});

test('what was typed into a dialog survives a click beside it, and Escape asks', async ({ page }) => {
  await signIn(page);
  await page.goto(`/t/${demo.tenant}/settings/members`);
  await page.getByRole('button', { name: 'Invite' }).click();
  const email = page.getByLabel('E-mail');
  await email.fill('grace@example.com');
  await clickBeside(page);
  await expect(email).toHaveValue('grace@example.com');
  await page.keyboard.press('Escape');
  await expect(page.getByText('Discard your edits?')).toBeVisible();
  await expectAccessible(page);
  await page.getByRole('button', { name: 'Keep editing' }).click();
  await expect(email).toHaveValue('grace@example.com');
  // The least role is the one that an invitation gives unless another is chosen.
  await expect(page.getByLabel('Role', { exact: true })).toHaveValue('viewer');

  await page.getByRole('button', { name: 'Create link' }).click();
  const link = page.getByRole('dialog', { name: 'Send this link to grace@example.com' });
  await expect(link.getByText('/invitation#')).toBeVisible();
  await page.keyboard.press('Escape');
  await clickBeside(page);
  await expect(link.getByText('/invitation#')).toBeVisible();
  await expectAccessible(page);
  await link.getByRole('button', { name: 'Done' }).click();
  await expect(link).toBeHidden();

  await page.getByRole('button', { name: 'Invite' }).click();
  await clickBeside(page); // nothing typed, nothing to lose
  await expect(page.getByRole('dialog')).toBeHidden();
});

test('back leaves a panel, however many rows were walked in it', async ({ page }) => {
  await signIn(page);
  for (const name of ['One', 'Two', 'Demo']) {
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
  await expect(page.getByRole('dialog')).toBeVisible();
  const first = page.url();
  await page.getByRole('button', { name: 'Close' }).click();
  await expect(page.getByRole('dialog')).toBeHidden();
  await page.getByRole('row').nth(2).click();
  await page.waitForURL((url) => url.search.includes('entry=') && url.href !== first);
  await page.goBack();
  await expect(page.getByRole('dialog')).toBeHidden();
  expect(page.url()).not.toContain('entry=');
  expect(page.url()).toContain('/settings/audit');
  await page.goBack();
  await expect(page).not.toHaveURL(/settings.audit/);
});

test('the search of the rules keeps the caret where one types', async ({ page }) => {
  await signIn(page);
  await page.goto(`/t/${demo.tenant}/rules?q=seah`);
  const search = page.getByRole('textbox', { name: 'Search' });
  await search.focus();
  await search.press('Home');
  await search.press('ArrowRight');
  await search.press('ArrowRight');
  await search.press('ArrowRight');
  await search.pressSequentially('rc', { delay: 30 });
  await expect(search).toHaveValue('search');
  await expect(page).toHaveURL(/q=search$/);
  await expect(search).toHaveValue('search');
});

test('a platform admin finds a new tenant in the switcher and in the palette', async ({ page }) => {
  await signIn(page);
  const made = await page.request.post('/api/v1/tenants', { data: { slug: 'zenith', name: 'Zenith Labs' } });
  expect(made.status()).toBe(201);
  await page.goto(`/t/${demo.tenant}/rules`);
  await settled(page);
  await page.getByRole('button', { name: /^Tenant:/ }).click();
  await page.getByLabel('Find a tenant').fill('zen');
  await expect(page.getByRole('option', { name: /Zenith Labs/ })).toBeVisible();
  await expectAccessible(page);
  await page.getByLabel('Find a tenant').press('Enter');
  await page.waitForURL('**/t/zenith/overview');
  await expect(page.getByRole('button', { name: /Zenith Labs/ })).toBeVisible();

  await page.goto(`/t/${demo.tenant}/try`);
  await settled(page);
  await page.keyboard.press('Control+k');
  await page.getByRole('combobox', { name: 'Search' }).fill('zenith');
  const found = page.getByRole('option', { name: /Zenith Labs/ }).last();
  await expect(found).toBeVisible();
  const selected = page.getByRole('listbox', { name: 'Results' }).getByRole('option', { selected: true });
  const [text, background] = await selected.evaluate((element) => {
    const style = getComputedStyle(element);
    return [style.color, style.backgroundColor];
  });
  expect(contrast(String(text), String(background))).toBeGreaterThan(4.5);
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
