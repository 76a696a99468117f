import { expect, expectAccessible, signIn, test } from './browser';
import { countClicks } from './clicks';
import { demo, until } from './sluice';
import { askAll, reports } from './traffic';

test.use({ server: 'attack' });

const at = (screen: string) => `/t/${demo.tenant}/${screen}`;
const attacker = '198.51.100.77';
const network = '198.51.100.0/24';
const attack = (users: number) =>
  Array.from({ length: users }, (_, user) => reports(`attacker-${user}`, 8))
    .flat()
    .map((check) => ({ ...check, ip: attacker }));

test('a network that attacks is blocked for an hour in two clicks from the overview', async ({ page, sluice }) => {
  await signIn(page);
  let denied = 0;
  const ask = async (checks: ReturnType<typeof attack>) => {
    const statuses = await askAll(sluice, checks);
    denied += statuses.filter((status) => status === 429).length;
    return statuses;
  };
  await ask(attack(30));
  await page.goto(at('overview'));
  const block = page.getByRole('table').getByRole('button', { name: `Block network ${network}` });
  await expect(block).toBeVisible({ timeout: 60_000 });
  const clicks = await countClicks(page);
  await block.click();
  const dialog = page.getByRole('dialog', { name: `Block network ${network}` });
  await expect(dialog.getByText(/checks of this network were denied/)).toBeVisible();
  await expect(dialog.getByText(/^Ends /)).toBeVisible();
  await expectAccessible(page);
  await dialog.getByRole('button', { name: 'Block for 1 hour' }).click();
  await expect(dialog).toBeHidden();
  await clicks.expectAtMost(2);
  const others = attack(1)
    .slice(0, 1)
    .map((check) => ({ ...check, user_id: 'nobody', endpoint: '/free' }));
  await until(async () => (await ask(others))[0] === 429);

  // A blocked check is counted once, and present for some seconds.
  const row = page.getByRole('table', { name: 'Top callers' }).getByRole('row', { name: `${network} network` });
  for (const _ of [1, 2]) {
    await ask(attack(30));
    await expect(row).toContainText(denied.toLocaleString('en'), { timeout: 60_000 });
    await expect(row.getByText(/^Blocked/)).toBeVisible();
  }
  await expect(row.getByRole('cell').nth(4)).toHaveText(/^0\b/, { timeout: 60_000 });

  await page.goto(`${at('violations')}?group=network`);
  await expect(page.getByRole('table', { name: 'Networks by denials' }).getByText(network)).toBeVisible();
  await expectAccessible(page);
  const rules = page.getByRole('list', { name: 'Temporary rules' });
  await expect(rules.getByText(/^Blocks until /)).toBeVisible();
  await rules.getByRole('button', { name: 'End now' }).click();
  await expect(rules).toBeHidden();
  await until(async () => (await askAll(sluice, others))[0] === 200);
});

test('a rule that denies too much is let through for an hour in three clicks, and ended before', async ({
  page,
  sluice,
}) => {
  await signIn(page);
  const flood = () => reports('customer', 12).map((check) => ({ ...check, ip: '198.51.100.78' }));
  await askAll(sluice, flood());
  const rule = async () => {
    const answer = await page.request.get(`/api/v1/tenants/${demo.tenant}/rules?limit=500`);
    const { items } = await answer.json();
    return items.find((one: { key_pattern: string }) => one.key_pattern.endsWith('/api/reports'));
  };
  const { mode } = await rule();
  expect(mode).toBe('enforce');
  await page.goto(`${at('violations')}?group=rule`);
  const menu = page.getByRole('button', { name: 'Actions for rule Each user on /api/reports · all plans' }).first();
  await expect(menu).toBeVisible({ timeout: 60_000 });
  const clicks = await countClicks(page);
  await menu.click();
  await page.getByRole('menuitem', { name: /^Let through/ }).click();
  const dialog = page.getByRole('dialog', { name: /^Let through/ });
  await expect(dialog.getByText(/it denied [\d,]+ checks?\.$/)).toBeVisible();
  await expect(dialog.getByText(/^Ends /)).toBeVisible();
  await expectAccessible(page);
  await dialog.getByRole('button', { name: 'Let through for 1 hour' }).click();
  await expect(dialog).toBeHidden();
  await clicks.expectAtMost(3);
  expect((await rule()).mode).toBe('shadow');

  await page.goto(`${at('violations')}?group=rule`);
  const rules = page.getByRole('list', { name: 'Temporary rules' });
  await expect(rules.getByText(/^Shadow until /)).toBeVisible();
  await expectAccessible(page);
  await rules.getByRole('button', { name: 'End now' }).click();
  await expect(rules).toBeHidden();
  expect((await rule()).mode).toBe('enforce');
});

test('why a user was limited takes a search, and a raise two clicks more; the story tells both', async ({
  page,
  sluice,
}) => {
  await askAll(sluice, reports('4711', 9));
  await signIn(page);
  await page.goto(at('users'));
  const clicks = await countClicks(page);
  await page.getByLabel('User id').fill('4711');
  await page.getByRole('link', { name: 'Open user 4711' }).click();
  const story = page.getByRole('list', { name: 'Time line' });
  await until(async () => {
    if (await story.getByText(/in this hour, by/).isVisible()) return true;
    await page.reload();
    await expect(page.getByRole('heading', { name: 'Recent denials' })).toBeVisible();
    return false;
  });
  await clicks.expectAtMost(1);
  await page.getByRole('button', { name: 'New override' }).click();
  const raise = page.getByRole('dialog', { name: 'New override for user 4711' });
  await raise.getByLabel('Reason').fill('ticket 1234');
  await raise.getByRole('button', { name: 'Save override' }).click();
  await expect(raise).toBeHidden();
  await clicks.expectAtMost(3);
  await expect(story.getByText(/ticket 1234/)).toBeVisible();
  await expect(page.getByRole('table', { name: 'Overrides' }).getByText(/^in (1.d|2[34].h)/)).toBeVisible();
  const saved = await page.request.get(`/api/v1/tenants/${demo.tenant}/overrides?user_id=4711`);
  const [{ expires_at }] = (await saved.json()).items;
  const hours = (Date.parse(expires_at) - Date.now()) / 3_600_000;
  expect(hours).toBeGreaterThan(23);
  expect(hours).toBeLessThanOrEqual(24);
  await expectAccessible(page);
});

test('a user who is blocked says so on its page, where the block is ended, and Overrides lists it', async ({
  page,
  sluice,
}) => {
  await signIn(page);
  await page.goto(at('users/4713'));
  await expect(page.getByRole('heading', { name: 'Time line' })).toBeVisible();
  const clicks = await countClicks(page);
  await page.getByRole('button', { name: 'Block or let through' }).click();
  await page.getByRole('menuitem', { name: /^Block/ }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Block for 1 hour' }).click();
  await expect(page.getByRole('dialog')).toBeHidden();
  await clicks.expectAtMost(3);
  const block = page.getByText(/^until .* by rule User 4713/);
  await expect(block).toBeVisible();
  await expectAccessible(page);
  const asked = reports('4713', 1).map((check) => ({ ...check, endpoint: '/free' }));
  await until(async () => (await askAll(sluice, asked))[0] === 429);
  await page.goto(at('overrides'));
  await expect(page.getByRole('list', { name: 'Temporary rules' }).getByText(/^Blocks until /)).toBeVisible();
  await page.goto(at('users/4713'));
  await page.getByRole('button', { name: 'End now' }).click();
  await expect(block).toBeHidden();
  await until(async () => (await askAll(sluice, asked))[0] === 200);
});

test('a violation opens beside the list, leads to its check, and its link opens the same for others', async ({
  page,
  browser,
  sluice,
}) => {
  await askAll(sluice, reports('4712', 9));
  await page.setViewportSize({ width: 1024, height: 768 });
  await signIn(page);
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
  const link = page.getByRole('table', { name: 'Violations' }).getByRole('link', { name: /4712/ }).first();
  await until(async () => {
    await page.goto(`${at('violations')}?user=4712`);
    await expect(page.getByRole('heading', { name: 'Violations' })).toBeVisible();
    return link.isVisible();
  });
  await link.click();
  const panel = page.getByRole('dialog', { name: 'Violation' });
  await expect(panel).toBeVisible();
  const [list, side] = [await page.getByRole('table').boundingBox(), await panel.boundingBox()];
  if (!list || !side) throw new Error('the list and the panel have no place');
  expect(list.x + list.width).toBeLessThanOrEqual(side.x);
  await expectAccessible(page);

  await page.getByRole('button', { name: 'Copy link' }).click();
  await expect(page.getByRole('button', { name: 'Link copied' })).toBeVisible();
  const copied = new URL(await page.evaluate(() => navigator.clipboard.readText()));
  expect(copied.searchParams.get('user')).toBe('4712');
  expect(copied.searchParams.get('range')).toContain('~');
  const other = await (await browser.newContext({ viewport: { width: 390, height: 844 } })).newPage();
  await other.goto(copied.href);
  await expect(other).toHaveURL(/sign-in/);
  await other.getByLabel('E-mail').fill(demo.email);
  await other.getByLabel('Password', { exact: true }).fill(demo.password);
  await other.getByRole('button', { name: 'Sign in', exact: true }).click();
  await expect(other.getByRole('dialog', { name: 'Violation' })).toBeVisible();
  expect((await other.getByRole('dialog', { name: 'Violation' }).boundingBox())?.width).toBe(390);
  await other.context().close();

  await panel.getByRole('link', { name: 'Try it' }).click();
  await expect(page.getByRole('textbox', { name: 'User', exact: true })).toHaveValue('4712');
  await expect(page.getByText(/api\/reports/).first()).toBeVisible();
});
