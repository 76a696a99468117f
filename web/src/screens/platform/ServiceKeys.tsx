import { useQuery, useQueryClient } from '@tanstack/react-query';
import { api } from '~/api/client';
import { all } from '~/api/pages';
import { Page } from '~/components/Page';
import { NoPermission } from '~/components/states';
import { KeyList } from '~/features/keys/KeyList';
import { platformRoom, serviceKeysKey } from '~/features/keys/room';
import { useSession } from '~/session';

export default function ServiceKeys() {
  const { account } = useSession();
  return (
    <Page title="Service keys">
      {account.platform_admin ? <List /> : <NoPermission need="platform">This requires a platform admin.</NoPermission>}
    </Page>
  );
}

function List() {
  const keys = useQuery({
    queryKey: serviceKeysKey,
    queryFn: ({ signal }) => all((cursor) => api.get('/api/v1/service-keys', { limit: 500, cursor, signal })),
  });
  return (
    <KeyList
      room={platformRoom(useQueryClient())}
      keys={keys}
      own
      title="Service keys"
      lead="A service key acts in every tenant, within its permissions. Only the admin API accepts it."
      empty="Automation, such as Terraform, sends a service key to create tenants and to change what is in them."
    />
  );
}
