import * as crypto from 'node:crypto';
import { createServer, type IncomingMessage, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Page } from '@playwright/test';
import { expect, expectAccessible, signIn, test } from './browser';
import { allowed, demo, type Sluice } from './sluice';
import { askAll, reports } from './traffic';

test.use({ server: 'alerts' });
test.setTimeout(300_000);

let receiver: Server;
const received: { path: string; signature: string; body: Buffer }[] = [];

test.beforeAll(async () => {
  receiver = createServer(async (request, response) => {
    const signature = String(request.headers['sluice-signature']);
    received.push({ path: request.url ?? '', signature, body: await bodyOf(request) });
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

const sentTo = (path: string) => received.filter((one) => one.path === path);

test('a private address is refused at once, and a webhook passes the check that the dialog shows', async ({ page }) => {
  await signIn(page);
  await page.goto(`/t/${demo.tenant}/settings/alerts`);
  await page.getByRole('button', { name: 'New alert' }).first().click();
  const form = page.getByRole('dialog', { name: 'New alert' });
  const name = `Somebody hammers search ${Date.now()}`;
  await form.getByLabel('Name').fill(name);
  await form.getByRole('combobox', { name: 'Rule' }).click();
  await page.getByRole('listbox', { name: 'Rule' }).getByRole('option').first().click();
  const { port } = receiver.address() as AddressInfo;
  await form.getByLabel('Webhook').fill(`http://127.0.0.1:${port}/`);
  await form.getByRole('button', { name: 'Create alert' }).click();
  await expect(form.getByText(/private/)).toBeVisible();
  await expectAccessible(page);
  const path = `/webhook-${Date.now()}`;
  await form.getByLabel('Webhook').fill(`http://${allowed}:${port}${path}`);
  await form.getByRole('button', { name: 'Create alert' }).click();

  const shown = page.getByRole('dialog', { name: 'Signing secret' });
  await expect(shown.getByText('Sluice-Signature: t=…,v1=…', { exact: true })).toBeVisible();
  const secret = await shown.getByText(/^[\w+/=-]{20,}$/).innerText();
  const recipe = await shown.getByRole('region', { name: 'Check a webhook in Node.js' }).innerText();
  await shown.getByRole('button', { name: 'Done' }).click();

  await page.getByRole('row', { name }).click();
  await page.getByRole('button', { name: 'Send a test' }).click();
  await expect.poll(() => sentTo(path).length).toBe(1);
  const isFromSluice = new Function(
    'createHmac',
    'timingSafeEqual',
    `${recipe.replace(/^import.*\n/, '')}return isFromSluice;`,
  )(crypto.createHmac, crypto.timingSafeEqual);
  const { signature, body } = sentTo(path)[0] as { signature: string; body: Buffer };
  expect(isFromSluice(secret, signature, body)).toBe(true);
  expect(isFromSluice(`${secret}x`, signature, body)).toBe(false);
  await expect(page.getByRole('dialog').getByText(/Test ·/)).toBeVisible();
});

async function denyReports(page: Page, sluice: Sluice, user: string): Promise<string> {
  const base = `/api/v1/tenants/${demo.tenant}`;
  const rules: { rule_id: string; key_pattern: string }[] = (
    await (await page.request.get(`${base}/rules?limit=500`)).json()
  ).items;
  const rule_id = rules.find(({ key_pattern }) => key_pattern.endsWith('endpoint:/api/reports'))?.rule_id ?? '';
  await askAll(sluice, reports(user, 60));
  const data = { kind: 'denials', rule_id, per: 'subject', threshold: 50, window_minutes: 5 };
  const isPreviewed = async () => {
    const preview = await (await page.request.post(`${base}/alerts/preview`, { data })).json();
    return preview.firings.some(({ subject }: { subject: string }) => subject === user);
  };
  // A preview judges whole minutes, so the running one must end first.
  await expect.poll(isPreviewed, { timeout: 100_000 }).toBe(true);
  return rule_id;
}

test('the form previews the last week, and a silenced alert records that it fired and sends nothing', async ({
  page,
  sluice,
}) => {
  await signIn(page);
  const user = `reporter-${Date.now()}`;
  await denyReports(page, sluice, user);
  await page.goto(`/t/${demo.tenant}/settings/alerts`);
  await page.getByRole('button', { name: 'New alert' }).first().click();
  const form = page.getByRole('dialog', { name: 'New alert' });
  const name = `Reports of ${user}`;
  await form.getByLabel('Name').fill(name);
  await form.getByRole('combobox', { name: 'Rule' }).fill('reports');
  await page.getByRole('option', { name: /reports/ }).click();
  await form.getByLabel('Count').selectOption('Each user or address by itself');
  const preview = form.getByRole('region', { name: 'Preview' });
  await form.getByLabel('Denials', { exact: true }).fill('1000000');
  await expect(preview).toHaveText(/^It would not have fired since .+, when counts begin\.$/);
  await form.getByLabel('Denials', { exact: true }).fill('50');
  await expect(preview).toContainText(/It would have fired \d+ times? since .+, when counts begin/);
  await expect(preview).toContainText(new RegExp(`[5-9]\\d denials of ${user}`));
  await expectAccessible(page);
  const path = `/${user}`;
  const { port } = receiver.address() as AddressInfo;
  await form.getByLabel('Webhook').fill(`http://${allowed}:${port}${path}`);
  await form.getByRole('switch', { name: 'On' }).uncheck(); // until it is silenced
  await form.getByRole('button', { name: 'Create alert' }).click();
  await page.getByRole('dialog', { name: 'Signing secret' }).getByRole('button', { name: 'Done' }).click();

  const row = page.getByRole('row', { name });
  await row.click();
  const panel = page.getByRole('dialog', { name: new RegExp(name) });
  await panel.getByRole('button', { name: 'Silence …' }).click();
  const silence = page.getByRole('dialog', { name: `Silence ${name}` });
  await silence.getByLabel('Duration').selectOption('4 hours');
  await silence.getByLabel('Reason').fill('a load test');
  await expectAccessible(page);
  await silence.getByRole('button', { name: 'Silence', exact: true }).click();
  await expect(panel.getByText(/^Silenced until .* by .*: a load test\./)).toBeVisible();
  await panel.getByRole('button', { name: 'Edit' }).click();
  const edit = page.getByRole('dialog', { name: `Alert ${name}` });
  await edit.getByRole('switch', { name: 'On' }).check();
  await edit.getByRole('button', { name: 'Save' }).click();
  await expect(edit).toBeHidden();
  await expect(row.getByText('Silenced')).toBeVisible();

  // The alert is judged every ten seconds, and the list is read again every fifteen.
  const fired = panel.getByRole('listitem').filter({ hasText: `denials of ${user}` });
  await expect(fired.getByText('Silenced', { exact: true })).toBeVisible({ timeout: 60_000 });
  expect(sentTo(path)).toEqual([]);
  await panel.getByRole('button', { name: 'End silence' }).click();
  await expect(row.getByText('On', { exact: true })).toBeVisible();
});

test('each format asks for what it needs, and Slack and PagerDuty get what they understand', async ({ page }) => {
  await signIn(page);
  const id = Date.now();
  const { port } = receiver.address() as AddressInfo;
  const receiving = (path: string) => `http://${allowed}:${port}${path}`;
  await page.goto(`/t/${demo.tenant}/settings/alerts`);
  await page.getByRole('button', { name: 'New alert' }).first().click();
  const form = page.getByRole('dialog', { name: 'New alert' });
  await form.getByLabel('Name').fill(`Slack ${id}`);
  await form.getByRole('combobox', { name: 'Rule' }).click();
  await page.getByRole('listbox', { name: 'Rule' }).getByRole('option').nth(1).click();
  await form.getByLabel('Send to').selectOption('E-mail');
  await expect(form.getByText('This installation sends no mail: no mail server is configured')).toBeVisible();
  await form.getByLabel('Send to').selectOption('PagerDuty');
  await form.getByLabel('Integration key').fill('too short');
  await form.getByRole('button', { name: 'Create alert' }).click();
  await expect(form.getByText(/32 letters and digits$/).last()).toBeVisible();
  await form.getByLabel('Send to').selectOption('Slack');
  await form.getByLabel('Slack webhook').fill(receiving(`/slack-${id}`));
  await expectAccessible(page);
  await form.getByRole('button', { name: 'Create alert' }).click();
  await expect(form).toBeHidden();

  const slack = page.getByRole('row', { name: `Slack ${id}` });
  await expect(slack.getByText('Slack', { exact: true })).toBeVisible();
  await slack.click();
  const panel = page.getByRole('dialog', { name: `Slack ${id}` });
  await expect(panel.getByText(`http://${allowed}:${port}/…`)).toBeVisible(); // the rest of the URL is a secret
  await panel.getByRole('button', { name: 'Send a test' }).click();
  await expect.poll(() => sentTo(`/slack-${id}`).length).toBe(1);
  expect(JSON.parse(String(sentTo(`/slack-${id}`)[0]?.body)).text).toContain('This is a test');
  await expect(panel.getByText(/Test ·/)).toBeVisible();
  await page.keyboard.press('Escape');

  const made = await page.request.post(`/api/v1/tenants/${demo.tenant}/alerts`, {
    data: {
      name: `PagerDuty ${id}`,
      rule_id: null,
      threshold: 1_000_000,
      window_minutes: 5,
      per: 'rule',
      format: 'pagerduty',
      url: receiving(`/pagerduty-${id}`),
      routing_key: 'a'.repeat(32),
    },
  });
  expect(made.ok(), await made.text()).toBe(true);
  await page.reload();
  await page.getByRole('row', { name: `PagerDuty ${id}` }).click();
  const event = page.getByRole('dialog', { name: `PagerDuty ${id}` });
  await expect(event.getByText('Events API v2')).toBeVisible();
  await event.getByRole('button', { name: 'Send a test' }).click();
  await expect.poll(() => sentTo(`/pagerduty-${id}`).length).toBe(1);
  expect(JSON.parse(String(sentTo(`/pagerduty-${id}`)[0]?.body))).toMatchObject({
    routing_key: 'a'.repeat(32),
    event_action: 'trigger',
  });
});
