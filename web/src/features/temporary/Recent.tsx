import { useQuery } from '@tanstack/react-query';
import { presentQuery, presentRate } from '~/api/traffic';
import { type Group, groupNouns } from '~/domain/group';

export function Recent({ tenant, group: { by, value } }: { tenant: string; group: Group }) {
  const { data } = useQuery(presentQuery(tenant, by));
  if (!data) return null;
  const denied = presentRate(data, value);
  return <p>Now: {denied ? `${denied} of this ${groupNouns[by]} are denied` : 'no denials'} (last 10 seconds).</p>;
}
