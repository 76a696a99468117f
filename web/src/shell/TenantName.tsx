import { useTenantName } from './useTenantName';

/** The tenant in the header of a phone, where the menu that shows it is closed. */
export function TenantName({ slug }: { slug: string }) {
  return (
    <span>
      <span className="aside">Tenant: </span>
      {useTenantName(slug)}
    </span>
  );
}
