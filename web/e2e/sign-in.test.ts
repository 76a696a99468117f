import { expect, expectAccessible, settled, signIn, test } from './browser';
import { demo } from './sluice';

test.use({ server: 'sign-in' }); // members join and are refused here

const password = 'a password that nobody guesses';

test('somebody who joined by a link signs in again from wherever they come', async ({ page: owner, newProfile }) => {
  await signIn(owner);
  await owner.goto(`/t/${demo.tenant}/settings/members`);
  await owner.getByRole('button', { name: 'Invite' }).click();
  await owner.getByLabel('E-mail').fill('lin@example.com');
  await owner.getByRole('button', { name: 'Create link' }).click();
  const link = await owner.getByRole('dialog').getByText('/invitation#').innerText();

  const lin = await newProfile();
  await lin.goto(link);
  await expect(lin.getByText(`/sign-in/${demo.tenant}`)).toBeVisible();
  await lin.getByLabel('Your name').fill('Lin');
  await lin.getByLabel('Choose a password').fill(password);
  await lin.getByRole('button', { name: 'Create account and join' }).click();
  await lin.waitForURL(`**/t/${demo.tenant}/overview`);
  await settled(lin);

  const heading = lin.getByRole('heading', { name: `Sign in to ${demo.tenant}` });
  const enter = async (page = lin) => {
    await page.getByLabel('E-mail').fill('lin@example.com');
    await page.getByLabel('Password', { exact: true }).fill(password);
    await page.getByRole('button', { name: 'Sign in', exact: true }).click();
  };

  await lin.goto('/profile');
  await expect(lin.getByText(/Your sign-in address is/)).toContainText(`/sign-in/${demo.tenant}`);
  await expectAccessible(lin);
  await lin.getByRole('button', { name: /^Account:/ }).click();
  await lin.getByRole('menuitem', { name: 'Sign out' }).click();
  await lin.waitForURL(`**/sign-in/${demo.tenant}`);
  await expect(heading).toBeVisible();
  await expectAccessible(lin);
  await enter();
  await lin.waitForURL(`**/t/${demo.tenant}/overview`);

  await settled(lin);
  await lin.context().clearCookies();
  await lin.getByRole('link', { name: 'Rules' }).click();
  await lin.waitForURL(`**/sign-in/${demo.tenant}?next=*`);
  await enter();
  await lin.waitForURL(`**/t/${demo.tenant}/rules`);

  const elsewhere = await newProfile();
  await elsewhere.goto(`/t/${demo.tenant}/overview`);
  await elsewhere.waitForURL(`**/sign-in/${demo.tenant}?next=*`);
  await enter(elsewhere);
  await elsewhere.waitForURL(`**/t/${demo.tenant}/overview`);

  const fresh = await newProfile();
  await fresh.goto('/sign-in');
  await enter(fresh);
  await expect(fresh.getByRole('alert')).toHaveText(/joined by a link sign in at their tenant's address/);
  await fresh.getByRole('button', { name: 'I joined by a link' }).click();
  await expectAccessible(fresh);
  await fresh.getByLabel('Tenant').fill(demo.tenant);
  await enter(fresh);
  await fresh.waitForURL(`**/t/${demo.tenant}/overview`);
  await settled(fresh);
  await fresh.context().clearCookies();
  await fresh.goto('/sign-in');
  await fresh.waitForURL(`**/sign-in/${demo.tenant}`);

  await fresh.getByLabel('E-mail').fill(demo.email);
  await fresh.getByLabel('Password', { exact: true }).fill(demo.password);
  await fresh.getByRole('button', { name: 'Sign in', exact: true }).click();
  await fresh.waitForURL(`**/t/${demo.tenant}/overview`);
});
