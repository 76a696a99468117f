import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { expectAccessible, newPage, settled, signIn, startBrowser } from './browser';
import { screens } from './screens';
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

test('signing out everywhere ends the session in another browser too', async () => {
  const here = await newPage(browser, sluice);
  const elsewhere = await newPage(browser, sluice);
  await signIn(here.page);
  await signIn(elsewhere.page);
  await elsewhere.page.goto(`/t/${demo.tenant}/settings/keys`);
  await settled(elsewhere.page);

  await here.page.goto('/profile');
  await settled(here.page);
  await here.page.getByRole('button', { name: 'Sign out everywhere …' }).click();
  await expectAccessible(here.page);
  await here.page.getByRole('dialog').getByRole('button', { name: 'Sign out everywhere' }).click();
  await here.page.waitForURL('**/sign-in');

  await elsewhere.page.getByRole('link', { name: 'Members' }).click();
  await elsewhere.page.waitForURL(/sign-in\?next=/);
  // Signing in again leads back to where one was.
  await elsewhere.page.getByLabel('E-mail').fill(demo.email);
  await elsewhere.page.getByLabel('Password', { exact: true }).fill(demo.password);
  await elsewhere.page.getByRole('button', { name: 'Sign in' }).click();
  await elsewhere.page.waitForURL('**/settings/members');
  expect([...here.complaints, ...elsewhere.complaints]).toEqual([]);
  await here.close();
  await elsewhere.close();
});

/** What only editors, owners and platform admins have. */
const forbidden =
  /^(Create key|Invite|New alert|New tenant|New plan|New limit|New rule|Save|Undo …|Show what would change|Suspend …|Put in shadow …|Enforce again …|Remove …|Actions of .*|Remove .*)$/;

test('an invited viewer sees every screen, and no button that would fail', async () => {
  const owner = await newPage(browser, sluice);
  await signIn(owner.page);
  await owner.page.goto(`/t/${demo.tenant}/settings/members`);
  await owner.page.getByRole('button', { name: 'Invite' }).click();
  await owner.page.getByLabel('E-mail').fill('vera@example.com');
  await owner.page.getByLabel('Role', { exact: true }).selectOption('viewer');
  await owner.page.getByRole('button', { name: 'Make the link' }).click();
  const link = await owner.page.getByRole('dialog').getByText('/invitation#').innerText();
  expect(link).toContain('/invitation#');
  await owner.close();

  const viewer = await newPage(browser, sluice);
  const refused: string[] = [];
  viewer.page.on('response', (answer) => answer.status() === 403 && refused.push(answer.url()));
  await viewer.page.goto(link);
  await viewer.page.getByRole('heading', { name: 'Join Demo' }).waitFor();
  await expectAccessible(viewer.page);
  await viewer.page.getByLabel('Your name').fill('Vera');
  await viewer.page.getByLabel('Choose a password').fill('a password that nobody guesses');
  await viewer.page.getByRole('button', { name: 'Make an account and join' }).click();
  await viewer.page.waitForURL(`**/t/${demo.tenant}/overview`);

  for (const { path } of screens.filter(({ name }) => name !== 'new-rule')) {
    await viewer.page.goto(path);
    await settled(viewer.page);
    expect(await viewer.page.getByRole('button', { name: forbidden }).count(), path).toBe(0);
  }
  await viewer.page.goto('/platform/tenants');
  await viewer.page.getByText('Your role does not include this').waitFor();
  expect(refused).toEqual([]);
  expect(viewer.complaints).toEqual([]);
  await viewer.close();
});

/** The status of a check of one user. */
async function checked(user: string): Promise<number> {
  const answer = await fetch(`${sluice.checkUrl}/v1/check`, {
    method: 'POST',
    headers: { Authorization: `Bearer ${demo.key}`, 'Content-Type': 'application/json' },
    body: JSON.stringify({ user_id: user, cost: 1e6 }), // more than any of the demo's limits holds
  });
  return answer.status;
}

test('a tenant is put in shadow, says so in red, and is enforced again', async () => {
  expect(await checked('42')).toBe(429);
  const { page, complaints, close } = await newPage(browser, sluice);
  await signIn(page);
  await page.goto(`/t/${demo.tenant}/settings/tenant`);
  await page.getByRole('button', { name: 'Put in shadow …' }).click();
  await page.getByText(/such checks will pass/).waitFor();
  await expectAccessible(page);
  await page.getByRole('dialog').getByRole('button', { name: 'Put in shadow' }).click();
  const banner = page.getByRole('region', { name: 'Enforcement' });
  await banner.getByText(`by ${demo.email}`).waitFor();
  await until(async () => (await checked('42')) === 200);

  for (const { path } of screens.filter(({ name }) => ['plans', 'user', 'try'].includes(name))) {
    await page.goto(path);
    await banner.waitFor();
  }
  await expectAccessible(page);
  const red = await banner.evaluate((element) => getComputedStyle(element).color);
  expect(red).toMatch(/^rgb\((1[5-9]\d|2\d\d), [0-9]{1,2}, [0-9]{1,2}\)$/);
  await page.goto('/platform/tenants');
  await page.getByRole('table').getByText('in shadow').waitFor();

  await page.goto(`/t/${demo.tenant}/overview`);
  await banner.getByRole('button', { name: 'Enforce again …' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Enforce again' }).click();
  await banner.waitFor({ state: 'hidden' });
  await until(async () => (await checked('42')) === 429);
  expect(complaints).toEqual([]);
  await close();
});
