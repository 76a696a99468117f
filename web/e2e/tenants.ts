import type { APIRequestContext, Page } from '@playwright/test';

export async function post(api: APIRequestContext, path: string, data: object) {
  const answer = await api.post(`/api/v1/${path}`, { data });
  if (!answer.ok()) throw new Error(`${path} was answered with ${answer.status()}: ${await answer.text()}`);
  return answer.json();
}

/** Other files of the worker change the demo tenant, so a test that counts takes its own. */
export async function newTenant(page: Page, slug: string, plans: string[], rules: object[] = []): Promise<void> {
  await post(page.request, 'tenants', { slug, name: slug });
  for (const name of plans) await post(page.request, `tenants/${slug}/plans`, { name });
  for (const rule of rules) await post(page.request, `tenants/${slug}/rules`, rule);
}
