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
        lead="They act in every tenant, on the admin API only."
        empty="For automation, such as Terraform."
      />
    </Page>
  );
}
