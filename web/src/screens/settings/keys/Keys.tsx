import { useQuery, useQueryClient } from '@tanstack/react-query';
import { KeyList } from '~/features/keys/KeyList';
import { tenantRoom } from '~/features/keys/room';
import { useRole, useTenant } from '~/session';
import { keysQuery } from './queries';

export default function Keys() {
  const tenant = useTenant();
  const { own } = useRole();
  const keys = useQuery({ ...keysQuery(tenant), refetchInterval: 5_000 }); // their last use
  return (
    <KeyList
      room={tenantRoom(useQueryClient(), tenant)}
      keys={keys}
      own={own}
      title="API keys"
      empty="A service sends one with each check."
    />
  );
}
