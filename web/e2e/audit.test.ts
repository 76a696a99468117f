import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, expectAccessible, signIn, test } from './browser';
import { allowed } from './sluice';
import { newTenant, post } from './tenants';

let receiver: Server;
let status = 200;
const received: string[] = [];

test.beforeAll(async () => {
  receiver = createServer(async (request, response) => {
    let text = '';
    for await (const part of request) text += part;
    if (status === 200) received.push(text);
    response.writeHead(status).end();
  });
  await new Promise<void>((resolve) => receiver.listen(0, allowed, resolve));
});
test.afterAll(() => receiver.close());

test('a webhook receives the changes of a tenant, and its card shows that it fails', async ({ page }) => {
  await signIn(page);
  await newTenant(page, 'audited', []);
  await page.goto('/t/audited/settings/tenant');
  await page.getByRole('button', { name: 'Add webhook' }).click();
  const form = page.getByRole('dialog', { name: 'Send the audit log to a webhook' });
  const { port } = receiver.address() as AddressInfo;
  await form.getByLabel('URL').fill(`http://127.0.0.1:${port}/`);
  await form.getByRole('button', { name: 'Create webhook' }).click();
  await expect(form.getByText(/private/)).toBeVisible();
  await expectAccessible(page);
  await form.getByLabel('URL').fill(`http://${allowed}:${port}/`);
  await form.getByRole('button', { name: 'Create webhook' }).click();
  await page.getByRole('dialog', { name: 'Signing secret' }).getByRole('button', { name: 'Done' }).click();

  const change = (name: string) => post(page.request, 'tenants/audited/plans', { name });
  const has = (name: string) => () => received.some((text) => text.includes(`"${name}"`));
  await change('received');
  await expect.poll(has('received'), { timeout: 60_000 }).toBe(true);
  await page.reload();
  await expect(page.getByText('Nothing yet')).toHaveCount(0);
  await expect(page.getByText(`http://${allowed}:${port}/`)).toBeVisible();

  status = 503;
  await change('delayed');
  await expect(async () => {
    await page.reload();
    await expect(page.getByText(/answered 503/)).toBeVisible({ timeout: 5_000 });
  }).toPass({ timeout: 60_000 });
  await expect(page.getByText('Failing', { exact: true })).toBeVisible();
  await expect(page.getByText('1 change', { exact: false }).first()).toBeVisible();
  await expectAccessible(page);
  expect(has('delayed')()).toBe(false);

  status = 200;
  await page.getByRole('button', { name: 'Send a test' }).click();
  await expect(page.getByText('Received', { exact: true })).toBeVisible({ timeout: 60_000 });

  await page.getByRole('button', { name: 'Remove …' }).last().click();
  await page.getByRole('dialog').getByRole('button', { name: 'Remove webhook' }).click();
  await expect(page.getByText('The audit log is not sent anywhere.')).toBeVisible();
});
