type Export = 'audit/export' | 'export' | 'users/export' | 'violations/export';

/** The address from which the browser downloads an export. Parameters that are undefined are left out. */
export function exportAddress(
  tenant: string,
  what: Export,
  parameters: Record<string, string | number | undefined> = {},
): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== undefined) query.set(name, String(value));
  }
  return `/api/v1/tenants/${encodeURIComponent(tenant)}/${what}?${query}`;
}
