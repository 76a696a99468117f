import { stringifySearch } from '~/search';
import { api } from './client';
import type { paths } from './schema';
import type { Export } from './types';

type Exported = 'audit/export' | 'export' | 'usage/export' | 'users/export' | 'violations/export';

type SecurityFilter = NonNullable<paths['/api/v1/security-log/export']['get']['parameters']['query']>;

export function exportAddress(
  tenant: string,
  what: Exported,
  parameters: Record<string, string | number | undefined> = {},
): string {
  return `/api/v1/tenants/${encodeURIComponent(tenant)}/${what}${stringifySearch(parameters)}`;
}

export function startExport(address: string): Promise<Export> {
  return api.post(address as '/api/v1/tenants/{tenant}/users/export', {} as never);
}

export function userDataAddress(tenant: string, user: string): string {
  return `/api/v1/tenants/${encodeURIComponent(tenant)}/users/${encodeURIComponent(user)}/data`;
}

/** A link to the file could not show why the server refuses. */
export async function securityExport(query: SecurityFilter): Promise<Blob> {
  return (await api.get('/api/v1/security-log/export', { ...query, parseAs: 'blob' })) as unknown as Blob;
}

export function save(file: Blob, name: string): void {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(file);
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}
