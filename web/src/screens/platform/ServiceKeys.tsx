import { useQuery, useQueryClient } from '@tanstack/react-query';
import { api } from '~/api/client';
import { all } from '~/api/pages';
import { Page } from '~/components/Page';
import { KeyList } from '~/features/keys/KeyList';
import { platformRoom, serviceKeysKey } from '~/features/keys/room';

export default function ServiceKeys() {
  const keys = useQuery({
    queryKey: serviceKeysKey,
    queryFn: ({ signal }) => all((cursor) => api.get('/api/v1/service-keys', { limit: 500, cursor, signal })),
  });
  return (
    <Page title="Service keys">
      <KeyList
        room={platformRoom(useQueryClient())}
        keys={keys}
        own
        title="Service keys"
        lead="A service key acts in every tenant, within its permissions. Only the admin API accepts it."
        empty="Automation, such as Terraform, sends a service key to create tenants and to change what is in them."
      />
    </Page>
  );
}
