import type { Page } from '@playwright/test';
import { expect, expectAccessible, signIn, test } from './browser';

test.use({ server: 'large' });

async function makeLarge(page: Page) {
  const lines = ['plans:'];
  for (let i = 0; i < 100; i++) lines.push(`  - {name: plan-${String(i).padStart(3, '0')}}`);
  lines.push('rules:');
  for (let i = 0; i < 800; i++) {
    lines.push(`  - {key_pattern: "user:{user_id}:endpoint:/api/${i}", rate: ${10 + i}/second, burst_capacity: 500}`);
  }
  for (let i = 0; i < 200; i++) {
    const plan = String(i % 100).padStart(3, '0');
    lines.push(
      `  - {key_pattern: "endpoint:/shared/${i}", plan: plan-${plan}, rate: ${100 + i}/minute, burst_capacity: 50}`,
    );
  }
  const made = await page.request.post('/api/v1/tenants', { data: { slug: 'large', name: 'Large' } });
  expect(made.status(), await made.text()).toBe(201);
  const imported = await page.request.post('/api/v1/tenants/large/import', {
    headers: { 'Content-Type': 'application/yaml' },
    data: lines.join('\n'),
  });
  expect(imported.status(), await imported.text()).toBe(200);
}

async function keystroke(page: Page, key: string, times: number): Promise<number> {
  await page.evaluate(() => {
    const took: number[] = [];
    const known = 'took' in window;
    Object.assign(window, { took });
    if (known) return;
    addEventListener(
      'keydown',
      ({ timeStamp }) =>
        requestAnimationFrame(() =>
          setTimeout(() => (window as unknown as { took: number[] }).took.push(performance.now() - timeStamp)),
        ),
      { capture: true },
    );
  });
  for (let i = 1; i <= times; i++) {
    await page.keyboard.press(key);
    await page.waitForFunction((n) => (window as unknown as { took: number[] }).took.length >= n, i);
  }
  const took = await page.evaluate(() => (window as unknown as { took: number[] }).took);
  return took.sort((a, b) => a - b)[Math.floor(took.length / 2)] as number;
}

test('a matrix of 1,000 rules by 100 plans draws what is visible, and is edited anywhere by keyboard', async ({
  page,
}) => {
  await signIn(page);
  await makeLarge(page);
  await page.goto('/t/large/overview');
  await page.getByRole('link', { name: 'Plans', exact: true }).waitFor();
  const begun = Date.now();
  await page.getByRole('link', { name: 'Plans', exact: true }).click();
  const grid = page.getByRole('grid', { name: 'Limits by plan' });
  await grid.locator('[data-cell="0-0"]').waitFor();
  const painted = Date.now() - begun;
  const nodes = await page.evaluate(() => document.querySelectorAll('*').length);
  await expect(grid).toHaveAttribute('aria-rowcount', '1001');
  expect(nodes).toBeLessThan(4000);
  await expectAccessible(page);

  await grid.locator('[data-cell="0-0"]').focus();
  const arrow = await keystroke(page, 'ArrowDown', 40);
  await expect(page.locator(':focus')).toHaveAttribute('data-cell', '40-0');
  await expect(page.locator(':focus')).toBeInViewport();
  await page.keyboard.press('End');
  await expect(page.locator(':focus')).toHaveAttribute('data-cell', '40-100');
  await expect(page.locator(':focus')).toBeInViewport();
  // The cell that has the focus keeps it while the matrix is scrolled away from it.
  await page.mouse.move(700, 500);
  await page.mouse.wheel(0, 30_000);
  await expect(grid.locator('[data-cell="40-100"]')).not.toBeInViewport();
  await page.keyboard.press('Enter');
  await page.keyboard.type('7');
  const typing = await keystroke(page, '0', 9);
  for (let i = 0; i < 8; i++) await page.keyboard.press('Backspace');
  await page.keyboard.press('Enter');
  await expect(page.getByText('1 change not saved')).toBeVisible();
  await expect(grid.locator('[data-cell="40-100"]')).toContainText('70/min');
  process.stdout.write(
    `matrix of 1,000 × 100: ${nodes} nodes, first paint ${painted} ms, an arrow key ${Math.round(arrow)} ` +
      `ms, a typed key ${Math.round(typing)} ms\n`,
  );
});
