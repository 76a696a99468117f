import { createHmac } from 'node:crypto';
import type { Page } from '@playwright/test';
import { expect, expectAccessible, settled, signIn, test } from './browser';
import { demo } from './sluice';

test.use({ server: 'factors' }); // the demo's admin gets a second factor

function codeOf(secret: string, at = Date.now()): string {
  const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567';
  const bits = [...secret].map((letter) => alphabet.indexOf(letter).toString(2).padStart(5, '0')).join('');
  const key = Buffer.from((bits.match(/.{8}/g) ?? []).map((byte) => Number.parseInt(byte, 2)));
  const counter = Buffer.alloc(8);
  counter.writeBigUInt64BE(BigInt(Math.floor(at / 30_000)));
  const hash = createHmac('sha1', key).update(counter).digest();
  const offset = (hash.at(-1) ?? 0) & 15;
  return String((hash.readUInt32BE(offset) & 0x7fffffff) % 1_000_000).padStart(6, '0');
}

async function firstStep(page: Page): Promise<void> {
  await page.goto('/sign-in');
  await page.getByLabel('E-mail').fill(demo.email);
  await page.getByLabel('Password', { exact: true }).fill(demo.password);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await expect(page.getByRole('heading', { name: 'Second step' })).toBeVisible();
}

async function secondStep(page: Page, code: string): Promise<void> {
  await page.getByLabel('Code', { exact: true }).fill(code);
  await page.getByRole('button', { name: 'Sign in' }).click();
}

test('a second factor is set up, asked for, replaced by a recovery code, and asked again', async ({
  page,
  newProfile,
}) => {
  await signIn(page);
  await page.goto('/profile');
  await settled(page);
  await page.getByRole('button', { name: 'Set up …' }).click();
  const dialog = page.getByRole('dialog');
  await expect(dialog.getByRole('img', { name: 'QR code with the secret' })).toBeVisible();
  await expectAccessible(page);
  const secret = (await dialog.locator('code').innerText()).replaceAll(' ', '');
  await dialog.getByLabel('Code', { exact: true }).fill('12345');
  await dialog.getByRole('button', { name: 'Turn on' }).click();
  await expect(dialog.getByText('The code is wrong')).toBeVisible();
  await dialog.getByLabel('Code', { exact: true }).fill(codeOf(secret));
  await dialog.getByRole('button', { name: 'Turn on' }).click();
  const list = page.getByRole('list', { name: 'Recovery codes' });
  await expect(list.getByRole('listitem')).toHaveCount(10);
  await expectAccessible(page);
  const recovery = await list.getByRole('listitem').allInnerTexts();
  await page.getByRole('button', { name: 'I have kept them' }).click();
  await expect(page.getByText('10 recovery codes left')).toBeVisible();

  const elsewhere = await newProfile();
  await firstStep(elsewhere);
  await expectAccessible(elsewhere);
  await secondStep(elsewhere, '000000');
  await expect(elsewhere.getByText('The code is wrong')).toBeVisible();
  // The code of the next 30 s: the present one may have turned the factor on.
  await secondStep(elsewhere, codeOf(secret, Date.now() + 30_000));
  await elsewhere.waitForURL(`**/t/${demo.tenant}/overview`);

  const withoutPhone = await newProfile();
  await firstStep(withoutPhone);
  await secondStep(withoutPhone, recovery[0] ?? '');
  await withoutPhone.waitForURL(`**/t/${demo.tenant}/overview`);
  await page.reload();
  await expect(page.getByText('9 recovery codes left')).toBeVisible();

  // The server refuses a stale session. Ours is young, so the refusal is made up; the rest is real.
  const refuseOnce = () =>
    page.route(
      '**/api/v1/account/second-factor',
      (route) =>
        route.fulfill({
          status: 403,
          contentType: 'application/problem+json',
          body: JSON.stringify({ type: 'urn:sluice:problem:fresh-proof-required', title: '', status: 403 }),
        }),
      { times: 1 },
    );
  await refuseOnce();
  await page.getByRole('button', { name: 'Turn off …' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Turn off' }).click();
  const proof = page.getByRole('dialog', { name: 'Confirm that it is you' });
  await proof.getByLabel('Your password').fill(demo.password);
  await proof.getByLabel('Code', { exact: true }).fill(recovery[1] ?? '');
  await proof.getByRole('button', { name: 'Continue' }).click();
  await expect(page.getByRole('button', { name: 'Set up …' })).toBeVisible();

  await refuseOnce();
  await page.getByRole('button', { name: 'Set up …' }).click();
  await expect(proof.getByLabel('Your password')).toBeFocused();
  await expectAccessible(page);
  await proof.getByRole('button', { name: 'Cancel' }).click();
  await expect(page.getByText('Could not begin')).toBeVisible();
});
