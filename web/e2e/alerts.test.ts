import * as crypto from 'node:crypto';
import { createServer, type IncomingMessage, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, expectAccessible, signIn, test } from './browser';
import { allowed, demo } from './sluice';

let receiver: Server;
const received: { signature: string; body: Buffer }[] = [];

test.beforeAll(async () => {
  receiver = createServer(async (request, response) => {
    const signature = String(request.headers['sluice-signature']);
    received.push({ signature, body: await bodyOf(request) });
    response.end();
  });
  await new Promise<void>((resolve) => receiver.listen(0, allowed, resolve));
});
test.afterAll(() => receiver.close());

async function bodyOf(request: IncomingMessage): Promise<Buffer> {
  const parts: Buffer[] = [];
  for await (const part of request) parts.push(part);
  return Buffer.concat(parts);
}

test('a private address is refused at once, and a webhook passes the check that the dialog shows', async ({
  page,
}) => {
  await signIn(page);
  await page.goto(`/t/${demo.tenant}/settings/alerts`);
  await page.getByRole('button', { name: 'New alert' }).first().click();
  const form = page.getByRole('dialog', { name: 'New alert' });
  await form.getByLabel('Name').fill('Somebody hammers search');
  await form.getByRole('combobox', { name: 'Rule' }).click();
  await page.getByRole('listbox', { name: 'Rule' }).getByRole('option').first().click();
  const { port } = receiver.address() as AddressInfo;
  await form.getByLabel('Webhook').fill(`http://127.0.0.1:${port}/`);
  await form.getByRole('button', { name: 'Create alert' }).click();
  await expect(form.getByText(/private/)).toBeVisible();
  await expectAccessible(page);
  await form.getByLabel('Webhook').fill(`http://${allowed}:${port}/`);
  await form.getByRole('button', { name: 'Create alert' }).click();

  const shown = page.getByRole('dialog', { name: 'Signing secret' });
  await expect(shown.getByText('Sluice-Signature: t=…,v1=…', { exact: true })).toBeVisible();
  const secret = await shown.getByText(/^[\w+/=-]{20,}$/).innerText();
  const recipe = await shown.getByRole('region', { name: 'Check a webhook in Node.js' }).innerText();
  await shown.getByRole('button', { name: 'Done' }).click();

  await page.getByRole('row', { name: /Somebody hammers search/ }).click();
  await page.getByRole('button', { name: 'Send a test' }).click();
  await expect.poll(() => received.length).toBe(1);
  const isFromSluice = new Function(
    'createHmac',
    'timingSafeEqual',
    `${recipe.replace(/^import.*\n/, '')}return isFromSluice;`,
  )(crypto.createHmac, crypto.timingSafeEqual);
  const { signature, body } = received[0] as { signature: string; body: Buffer };
  expect(isFromSluice(secret, signature, body)).toBe(true);
  expect(isFromSluice(`${secret}x`, signature, body)).toBe(false);
  await expect(page.getByRole('dialog').getByText(/Test ·/)).toBeVisible();
});
