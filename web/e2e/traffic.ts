import { demo, type Sluice } from './sluice';

interface Check {
  user_id: string;
  plan?: string;
  endpoint: string;
  method: string;
  ip?: string;
  cost?: number;
}

export async function askAll(sluice: Sluice, checks: Check[]): Promise<number[]> {
  const answer = await fetch(`${sluice.checkUrl}/v1/check/batch`, {
    method: 'POST',
    headers: { Authorization: `Bearer ${demo.key}`, 'Content-Type': 'application/json' },
    body: JSON.stringify({ checks }),
  });
  if (!answer.ok) throw new Error(`the checks were answered with ${answer.status}: ${await answer.text()}`);
  const { results } = (await answer.json()) as { results: { status: number }[] };
  return results.map(({ status }) => status);
}

export function reports(user_id: string, count: number, cost = 1): Check[] {
  return Array.from({ length: count }, () => ({
    user_id,
    endpoint: '/api/reports',
    method: 'GET',
    ip: '203.0.113.9',
    cost,
  }));
}

const endpoints = ['/api/search', '/api/reports', '/v1/charges', '/v1/customers', '/internal/health'];
const users = ['42', '1007', 'acme-ci', '8841', 'cus_9f21', '301'];

export async function ordinaryTraffic(sluice: Sluice): Promise<void> {
  const checks = Array.from({ length: 900 }, (_, index) => ({
    user_id: users[(index * index) % users.length] ?? '42',
    endpoint: endpoints[(index * 7 + (index % 3)) % endpoints.length] ?? '/',
    method: index % 5 === 2 ? 'POST' : 'GET',
    ip: `203.0.113.${1 + ((index * index) % 12)}`,
  }));
  await askAll(sluice, [...checks, ...reports('42', 60)]);
}
