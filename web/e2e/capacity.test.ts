import { expect, expectAccessible, signIn, test } from './browser';
import { demo } from './sluice';

test('a platform admin lowers a capacity, the form says that there is no room, and raising it makes some', async ({
  page,
}) => {
  await signIn(page);
  await page.goto(`/t/${demo.tenant}/settings/tenant`);
  const setAlerts = async (n: string) => {
    await page.getByRole('button', { name: 'Edit capacity' }).click();
    const form = page.getByRole('dialog', { name: 'Edit capacity' });
    await form.getByLabel('Alerts').fill(n);
    await form.getByRole('button', { name: 'Save capacity' }).click();
    await expect(form).toBeHidden();
  };
  await setAlerts('0');
  await expect(page.getByText(/^\d+ of 0 · full/)).toBeVisible();
  await expectAccessible(page);

  await page.getByRole('link', { name: 'Alerts', exact: true }).click();
  await page.getByRole('button', { name: 'New alert' }).first().click();
  const form = page.getByRole('dialog', { name: 'New alert' });
  await expect(form.getByText(/This tenant holds \d+ alerts? and may hold 0\./)).toBeVisible();
  await form.getByLabel('Name').fill('Somebody hammers search');
  await form.getByRole('combobox', { name: 'Rule' }).click();
  await page.getByRole('listbox', { name: 'Rule' }).getByRole('option').first().click();
  await form.getByLabel('Webhook').fill('http://127.0.0.2:9/');
  await form.getByRole('button', { name: 'Create alert' }).click();
  await expect(form.getByText(/the tenant's capacity is 0 alerts/)).toBeVisible();
  await expectAccessible(page);
  await form.getByRole('button', { name: 'Cancel' }).click();

  await page.getByRole('link', { name: 'Tenant', exact: true }).click();
  await setAlerts('50');
  await expect(page.getByText(/^\d+ of 50/)).toBeVisible();
});
