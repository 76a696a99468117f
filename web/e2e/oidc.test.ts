import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Route } from '@playwright/test';
import { test as base, expect, expectAccessible, settled, signIn } from './browser';
import { client, type Provider, startProvider } from './provider';
import { demo, startSluice } from './sluice';

const test = base.extend<object, { provider: Provider }>({
  provider: [
    // biome-ignore lint/correctness/noEmptyPattern: Playwright reads the pattern
    async ({}, use) => {
      const provider = await startProvider();
      await use(provider);
      await provider.stop();
    },
    { scope: 'worker' },
  ],
  sluice: [
    async ({ provider }, use) => {
      const folder = await mkdtemp(join(tmpdir(), 'sluice-oidc-'));
      const file = join(folder, 'oidc.json');
      const entry = {
        slug: 'example',
        name: 'Example',
        issuer: provider.issuer,
        client_id: client.id,
        client_secret: client.secret,
        email_domains: ['example.com'],
        create_accounts: true,
        groups_claim: 'groups',
        groups: [{ group: 'ops', tenant: demo.tenant, role: 'editor' }],
        sign_out: true,
      };
      await writeFile(file, JSON.stringify({ providers: [entry] }));
      const sluice = await startSluice({ SLUICE_OIDC_FILE: file });
      await provider.register(sluice.url);
      await use(sluice);
      await sluice.stop();
      await rm(folder, { recursive: true, force: true });
    },
    { scope: 'worker', timeout: 240_000 },
  ],
});
test.use({ server: 'oidc' });

const button = { name: 'Sign in with Example' };

test('somebody signs in at a provider, is where they wanted to be, and signs out there too', async ({
  page,
  provider,
}) => {
  await provider.be({
    sub: '1',
    email: 'grace@example.com',
    email_verified: true,
    name: 'Grace',
    groups: ['ops'],
  });
  await page.goto(`/t/${demo.tenant}/rules`);
  await page.waitForURL(/sign-in\/demo\?next=/);
  await expect(page.getByRole('button', button)).toBeVisible();
  await expectAccessible(page);
  await page.getByRole('button', button).click();
  await page.waitForURL(`**/t/${demo.tenant}/rules`);
  await expect(page.getByRole('link', { name: 'New rule' })).toBeVisible(); // the group made an editor

  await page.getByRole('button', { name: /^Account:/ }).click();
  await page.getByRole('menuitem', { name: 'Sign out' }).click();
  await page.waitForURL(`**/sign-in/${demo.tenant}`);
  await page.goto('/profile');
  await page.waitForURL(/sign-in\/demo\?next=/);

  await provider.be({ sub: '2', email: 'eve@elsewhere.example', email_verified: true });
  await page.getByRole('button', button).click();
  await expect(page.getByRole('alert')).toHaveText(/Example knows you by an e-mail address of a domain/);
  await expectAccessible(page);
});

test('an account with the address is linked from the profile, and both ways lead to it', async ({ page, provider }) => {
  await provider.be({ sub: '3', email: demo.email, email_verified: true });
  await page.goto('/sign-in');
  await page.getByRole('button', button).click();
  await expect(page.getByRole('alert')).toHaveText(/Sign in to it, then link the two on your profile/);

  await signIn(page);
  await page.goto('/profile');
  await page.getByRole('button', { name: 'Link Example …' }).click();
  await expectAccessible(page);
  await page.getByRole('button', { name: 'Go to Example' }).click();
  await expect(page.getByText('Example is linked.')).toBeVisible();
  await settled(page);
  await expectAccessible(page);

  await page.context().clearCookies();
  await page.goto('/sign-in');
  await page.getByRole('button', button).click();
  await page.waitForURL((url) => !url.pathname.startsWith('/sign-in'));
  await page.goto('/platform/sign-in');
  await expect(page.getByText('Answers', { exact: true })).toBeVisible();
  await expect(page.getByText('has an account here that is not linked')).toBeVisible();
  await expectAccessible(page);

  await page.goto('/profile');
  await page.getByRole('button', { name: 'Unlink Example …' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Unlink' }).click();
  await expect(page.getByText('None yet.')).toBeVisible();
});

test('somebody without a password confirms a dangerous change at the provider', async ({ page, provider }) => {
  const grace = { sub: '1', email: 'grace@example.com', email_verified: true, name: 'Grace' };
  await provider.be(grace);
  await page.goto('/sign-in?next=/profile');
  await page.getByRole('button', button).click();
  await page.waitForURL('**/profile');

  // The server refuses a stale session. Ours is young, so the refusal is made up; the rest is real.
  const setUp = page.getByRole('button', { name: 'Set up …' });
  const proof = page.getByRole('dialog', { name: 'Confirm that it is you' });
  const secondFactor = '**/api/v1/account/second-factor';
  const refuse = (route: Route) =>
    route.request().method() === 'POST'
      ? route.fulfill({
          status: 403,
          contentType: 'application/problem+json',
          body: JSON.stringify({ type: 'urn:sluice:problem:fresh-proof-required', title: '', status: 403 }),
        })
      : route.continue();
  const refused = async () => {
    await page.route(secondFactor, refuse);
    await setUp.click();
    await expect(proof.getByRole('button', { name: 'Continue at Example' })).toBeVisible();
    await page.unroute(secondFactor, refuse);
  };
  await settled(page);
  await refused();
  await expectAccessible(page);
  await provider.be({ sub: '9', email: 'eve@example.com', email_verified: true });
  await proof.getByRole('button', { name: 'Continue at Example' }).click();
  await expect(page.getByRole('alert')).toHaveText(
    'Example signed in somebody else than the person whose account this is.',
  );
  await expectAccessible(page);
  await page.getByRole('link', { name: 'Back to where you were' }).click();
  await page.waitForURL('**/profile');

  await settled(page);
  await refused();
  await provider.be(grace);
  await proof.getByRole('button', { name: 'Continue at Example' }).click();
  await page.waitForURL('**/profile');
  await expect(page.getByText('Confirmed that it is you.')).toBeVisible();
  await setUp.click();
  await expect(page.getByRole('img', { name: 'QR code with the secret' })).toBeVisible();
});
