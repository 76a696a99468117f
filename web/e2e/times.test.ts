import { expect, expectAccessible, settled, signIn, test } from './browser';
import { demo } from './sluice';

test.use({ timezoneId: 'Asia/Kolkata' });

test('times are shown and typed in the zone of the reader, or in UTC', async ({ page }) => {
  await signIn(page);
  await page.goto(`/t/${demo.tenant}/violations`);
  await settled(page);
  const range = page.getByRole('button', { name: /Time range/ });

  await range.click();
  await expect(page.getByText(/Times are in Asia\/(Kolkata|Calcutta) \(UTC\+5:30\)/)).toBeVisible();
  await page.getByRole('menuitem', { name: 'From … until …' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('From').fill('2026-03-01 05:30');
  await dialog.getByLabel('Until').fill('2026-03-01 04:30');
  await expect(dialog.getByText('must be later than the start')).toBeVisible();
  await expect(dialog.getByRole('button', { name: 'Show' })).toBeDisabled();
  await dialog.getByLabel('Until').fill('2026-03-01 06:30');
  await expectAccessible(page);
  await dialog.getByRole('button', { name: 'Pick a day' }).first().click();
  await expect(page.getByRole('button', { name: '1 March 2026', exact: true })).toBeFocused();
  await expectAccessible(page);
  await page.keyboard.press('Escape');
  await expect(dialog.getByRole('button', { name: 'Pick a day' }).first()).toBeFocused();
  await dialog.getByRole('button', { name: 'Show' }).click();
  await expect(range).toContainText('1 Mar 2026, 05:30:00 to 1 Mar 2026, 06:30:00 UTC+05:30');
  expect(new URL(page.url()).searchParams.get('range')).toBe('2026-03-01T00:00:00Z~2026-03-01T01:00:00Z');

  await range.click();
  await page.getByRole('menu').getByText('UTC', { exact: true }).click();
  await expect(range).toContainText('1 Mar 2026, 00:00:00 to 1 Mar 2026, 01:00:00 UTC');
  await range.click();
  await page.getByRole('menuitem', { name: 'From … until …' }).click();
  await expect(page.getByLabel('From')).toHaveValue('2026-03-01 00:00');
});

for (const minutes of [-10, 10]) {
  test(`a browser whose clock is ${minutes} minutes off asks for the ranges that others ask for`, async ({ page }) => {
    await page.clock.install({ time: Date.now() + minutes * 60_000 });
    const off: number[] = [];
    page.on('request', (request) => {
      const until = new URL(request.url()).searchParams.get('until');
      if (!until) return;
      const away = Math.abs(Date.parse(until) - Date.now());
      off.push(Math.min(away, Math.abs(away - 86_400_000))); // the overview compares with yesterday
    });
    await signIn(page);
    for (const screen of ['overview', 'violations', 'users/42', 'settings/security']) {
      const before = off.length;
      await page.goto(`/t/${demo.tenant}/${screen}`);
      await settled(page);
      expect(off.length, screen).toBeGreaterThan(before);
    }
    // A range may end with the last full minute, and a machine may be busy.
    expect(Math.max(...off)).toBeLessThan(240_000);
  });
}
