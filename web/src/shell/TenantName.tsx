import { useTenantName } from './useTenantName';

export function TenantName({ slug }: { slug: string }) {
  return (
    <span>
      <span className="aside">Tenant: </span>
      {useTenantName(slug)}
    </span>
  );
}
