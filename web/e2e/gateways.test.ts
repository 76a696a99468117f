import { expect, expectAccessible, settled, signIn, test } from './browser';
import { demo } from './sluice';

test('descriptors that are pasted show their checks with a mapping that is saved and undone', async ({
  page,
}) => {
  await signIn(page);
  const tenants = await page.request.post('/api/v1/tenants', { data: { slug: 'envoys', name: 'Envoys' } });
  expect(tenants.ok()).toBe(true);
  const rule = await page.request.post('/api/v1/tenants/envoys/rules', {
    data: { key_pattern: 'attr.descriptor:customer:user:{user_id}', rate_per_second: 1, burst_capacity: 5 },
  });
  expect(rule.ok()).toBe(true);
  await page.goto('/t/envoys/settings/gateways');
  await page.getByText('gRPC: Envoy, Istio …').click();
  await page.getByRole('button', { name: 'New mapping' }).click();
  await page.getByLabel('Keys').fill('customer = user_id');
  await page.getByRole('button', { name: 'Add domain' }).click();
  await page.getByLabel('Domain 1: name').fill('edge');
  await page.getByLabel('Domain 1: templates').fill('customer');
  await page.getByLabel('Domain', { exact: true }).fill('edge');
  await page
    .getByLabel('Descriptors')
    .fill('{"descriptors": [{"entries": [{"key": "customer", "value": "42"}]}]}');
  const matched = page.getByRole('table', { name: 'Matched rules' });
  await expect(matched.getByText('Each user with descriptor customer')).toBeVisible();
  await settled(page);
  await expectAccessible(page);
  await page.getByRole('button', { name: 'Save' }).click();
  await expect(page.getByText('Mapping saved. It takes effect within 2 s')).toBeVisible();
  await page.reload();
  await expect(page.getByLabel('Domain 1: templates')).toHaveValue('customer');
  await page.getByRole('button', { name: 'Remove mapping …' }).click();
  await page.getByRole('button', { name: 'Remove mapping', exact: true }).click();
  await expect(page.getByText('No mapping yet')).toBeVisible();
  await page.goto(`/t/envoys/settings/audit?kind=gateway`);
  await expect(page.getByText('the mapping of gateways (descriptors)').first()).toBeVisible();
});

test('a sample request shows the check that it becomes before anything is saved', async ({ page }) => {
  await signIn(page);
  await page.goto(`/t/${demo.tenant}/settings/gateways`);
  await page.getByRole('button', { name: 'New mapping' }).click();
  await page.getByLabel('User', { exact: true }).selectOption('header');
  await page.getByLabel('User: name').fill('X-User');
  await page.getByLabel('Keep the value as it is').check();
  await page.getByLabel('Endpoint templates').fill('/orders/{id}');
  await page.getByLabel('Headers').fill('X-User: 42\nX-Forwarded-For: 203.0.113.9');
  await expect(page.getByText('GET /orders/{id}', { exact: true })).toBeVisible();
  await expect(
    page.getByRole('table', { name: 'Matched rules' }).getByText('Each user').first(),
  ).toBeVisible();
});
