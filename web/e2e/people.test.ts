import { expect, expectAccessible, settled, signIn, test } from './browser';
import { screens } from './screens';
import { demo, type Sluice } from './sluice';

test('signing out everywhere ends the session in another browser too', async ({ page: here, newProfile }) => {
  const elsewhere = await newProfile();
  await signIn(here);
  await signIn(elsewhere);
  await elsewhere.goto(`/t/${demo.tenant}/settings/members`);
  await settled(elsewhere);

  await here.goto('/profile');
  await settled(here);
  await here.getByRole('button', { name: 'Sign out everywhere …' }).click();
  await expectAccessible(here);
  await here.getByRole('dialog').getByRole('button', { name: 'Sign out everywhere' }).click();
  await here.waitForURL(`**/sign-in/${demo.tenant}`);

  // Unless the page has asked for something since, and is at the sign-in already.
  await elsewhere.reload();
  await elsewhere.waitForURL(/sign-in\/demo\?next=/);
  await elsewhere.getByLabel('E-mail').fill(demo.email);
  await elsewhere.getByLabel('Password', { exact: true }).fill(demo.password);
  await elsewhere.getByRole('button', { name: 'Sign in' }).click();
  await elsewhere.waitForURL('**/settings/members');
});

const forbidden = new RegExp(
  `^(Create key|Invite|New alert|New tenant|New plan|Add rule|New rule|New override|Save|Undo …|Review ` +
    `changes|Suspend …|Put in shadow …|Enforce again …|Remove …|Actions of .*|Remove .*)$`,
);

test('an invited viewer sees every screen, and no button that would fail', async ({ page: owner, newProfile }) => {
  await signIn(owner);
  await owner.goto(`/t/${demo.tenant}/settings/members`);
  await owner.getByRole('button', { name: 'Invite' }).click();
  await owner.getByLabel('E-mail').fill('vera@example.com');
  await owner.getByLabel('Role', { exact: true }).selectOption('viewer');
  await owner.getByRole('button', { name: 'Create link' }).click();
  const link = await owner.getByRole('dialog').getByText('/invitation#').innerText();
  expect(link).toContain('/invitation#');

  const viewer = await newProfile();
  const refused: string[] = [];
  viewer.on('response', (answer) => answer.status() === 403 && refused.push(answer.url()));
  await viewer.goto(link);
  await expect(viewer.getByRole('heading', { name: 'Join Demo' })).toBeVisible();
  await expectAccessible(viewer);
  await viewer.getByLabel('Your name').fill('Vera');
  await viewer.getByLabel('Choose a password').fill('a password that nobody guesses');
  await viewer.getByRole('button', { name: 'Create account and join' }).click();
  await viewer.waitForURL(`**/t/${demo.tenant}/overview`);

  for (const { path } of screens.filter(({ name }) => name !== 'new-rule')) {
    await viewer.goto(path);
    await settled(viewer);
    await expect(viewer.getByRole('button', { name: forbidden }), path).toHaveCount(0);
  }
  await viewer.goto('/platform/tenants');
  await expect(viewer.getByText('You do not have permission')).toBeVisible();
  expect(refused).toEqual([]);
});

async function checked(sluice: Sluice, user: string): Promise<number> {
  const answer = await fetch(`${sluice.checkUrl}/v1/check`, {
    method: 'POST',
    headers: { Authorization: `Bearer ${demo.key}`, 'Content-Type': 'application/json' },
    body: JSON.stringify({ user_id: user, cost: 1e6 }), // more than any of the demo's limits holds
  });
  return answer.status;
}

test('a tenant is put in shadow, says so in red, and is enforced again', async ({ page, sluice }) => {
  expect(await checked(sluice, '42')).toBe(429);
  await signIn(page);
  await page.goto(`/t/${demo.tenant}/settings/tenant`);
  await page.getByRole('button', { name: 'Put in shadow …' }).click();
  await expect(page.getByText(/Such checks will be allowed/)).toBeVisible();
  await expectAccessible(page);
  await page.getByRole('dialog').getByRole('button', { name: 'Put in shadow' }).click();
  const banner = page.getByRole('region', { name: 'Enforcement' });
  await expect(banner.getByText(`by ${demo.email}`)).toBeVisible();
  await expect.poll(() => checked(sluice, '42')).toBe(200);

  for (const { path } of screens.filter(({ name }) => ['plans', 'user', 'try'].includes(name))) {
    await page.goto(path);
    await expect(banner).toBeVisible();
  }
  await expectAccessible(page);
  const red = await banner.evaluate((element) => getComputedStyle(element).color);
  expect(red).toMatch(/^rgb\((1[5-9]\d|2\d\d), [0-9]{1,2}, [0-9]{1,2}\)$/);
  await page.goto('/platform/tenants');
  await expect(page.getByRole('table').getByText('In shadow')).toBeVisible();

  await page.goto(`/t/${demo.tenant}/overview`);
  await banner.getByRole('button', { name: 'Enforce again …' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Enforce again' }).click();
  await expect(banner).toBeHidden();
  await expect.poll(() => checked(sluice, '42')).toBe(429);
});

test('the token of a mailed link is in no request’s address and in no Referer', async ({ newProfile }) => {
  const token = 'T'.repeat(43);
  for (const path of ['/reset-password', '/invitation', '/prove-address', '/sign-in-link']) {
    const page = await newProfile();
    const sent: Promise<string>[] = [];
    page.on('request', (request) => {
      const whole = async () => `${request.url()} ${JSON.stringify(await request.allHeaders())}`;
      sent.push(whole());
    });
    await page.goto(`${path}#${token}`);
    await page.waitForLoadState('networkidle');
    if (path === '/reset-password') {
      await page.getByLabel('New password').fill('eight old grey cats');
      await page.getByRole('button', { name: 'Save password' }).click();
      await expect(page.getByText('This link is no longer valid')).toBeVisible();
    }
    await page.evaluate(() => location.assign('/sign-in'));
    await page.waitForURL('**/sign-in');
    await page.waitForLoadState('networkidle');
    const told = await Promise.all(sent);
    expect(told.length, path).toBeGreaterThan(3);
    expect(
      told.filter((text) => text.includes(token)),
      path,
    ).toEqual([]);
    await page.context().close();
  }
});
