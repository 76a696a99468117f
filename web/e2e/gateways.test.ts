import { expect, expectAccessible, settled, signIn, test } from './browser';
import { demo } from './sluice';

test('descriptors that are pasted show their checks with a mapping that is saved and undone', async ({ page }) => {
  await signIn(page);
  const tenants = await page.request.post('/api/v1/tenants', { data: { slug: 'envoys', name: 'Envoys' } });
  expect(tenants.ok()).toBe(true);
  const rule = await page.request.post('/api/v1/tenants/envoys/rules', {
    data: { key_pattern: 'attr.descriptor:customer:user:{user_id}', rate_per_second: 1, burst_capacity: 5 },
  });
  expect(rule.ok()).toBe(true);
  await page.goto('/t/envoys/settings/gateways');
  await page.getByText('gRPC: Envoy, Istio …').click();
  const mapping = { domains: { edge: { templates: [['customer']] } }, keys: { customer: 'user_id' } };
  await page.getByLabel('JSON').fill(JSON.stringify(mapping));
  await page.getByLabel('Domain', { exact: true }).fill('edge');
  await page.getByLabel('Descriptors').fill('{"descriptors": [{"entries": [{"key": "customer", "value": "42"}]}]}');
  const matched = page.getByRole('table', { name: 'Matched rules' });
  await expect(matched.getByText('Each user with descriptor customer')).toBeVisible();
  await settled(page);
  await expectAccessible(page);
  await page.getByRole('button', { name: 'Save' }).click();
  await expect(page.getByText('Mapping saved. It takes effect within 2 s')).toBeVisible();
  await page.reload();
  await expect(page.getByLabel('JSON')).toHaveValue(JSON.stringify(mapping, null, 2));
  await page.getByRole('button', { name: 'Remove mapping …' }).click();
  await page.getByRole('button', { name: 'Remove mapping', exact: true }).click();
  await expect(page.getByText('Not set. The defaults apply.')).toBeVisible();
  await page.goto(`/t/envoys/settings/audit?kind=gateway`);
  await expect(page.getByText('the mapping of gateways (descriptors)').first()).toBeVisible();
});

test('a sample request shows the check that it becomes before anything is saved', async ({ page }) => {
  await signIn(page);
  await page.goto(`/t/${demo.tenant}/settings/gateways`);
  await page
    .getByLabel('JSON')
    .fill('{"user": {"header": "X-User", "plain": true}, "endpoint": {"templates": ["/orders/{id}"]}}');
  await page.getByLabel('Headers').fill('X-User: 42\nX-Forwarded-For: 203.0.113.9');
  await expect(page.getByText('GET /orders/{id}', { exact: true })).toBeVisible();
  await expect(page.getByRole('table', { name: 'Matched rules' }).getByText('Each user').first()).toBeVisible();
});
