import { api, body } from './client';
import type { Export } from './types';

type Exported = 'audit/export' | 'export' | 'usage/export' | 'users/export' | 'violations/export';

/** The address from which the browser downloads an export, without undefined parameters. */
export function exportAddress(
  tenant: string,
  what: Exported,
  parameters: Record<string, string | number | undefined> = {},
): string {
  return `/api/v1/tenants/${encodeURIComponent(tenant)}/${what}?${queryOf(parameters)}`;
}

/** Lets a job write the file that an address would download. */
export function startExport(address: string): Promise<Export> {
  return body(api.POST(address as '/api/v1/tenants/{tenant}/users/export', {} as never));
}

export function userDataAddress(tenant: string, user: string): string {
  return `/api/v1/tenants/${encodeURIComponent(tenant)}/users/${encodeURIComponent(user)}/data`;
}

export function securityExport(parameters: Record<string, string | undefined>): string {
  return `/api/v1/security-log/export?${queryOf(parameters)}`;
}

function queryOf(parameters: Record<string, string | number | undefined>): URLSearchParams {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== undefined) query.set(name, String(value));
  }
  return query;
}
