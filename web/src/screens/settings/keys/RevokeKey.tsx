import { useQueryClient } from '@tanstack/react-query';
import { changed } from '~/api/changes';
import { api, body, etagOf, ifMatch } from '~/api/client';
import type { Key } from '~/api/types';
import { ConfirmAction } from '~/components/ConfirmAction';
import { RelativeTime } from '~/components/Time';
import { done } from '~/components/toast';

/** Asks before a key ends for good; null: nothing is asked. */
export function RevokeKey({
  tenant,
  item,
  onClose,
}: {
  tenant: string;
  item: Key | null;
  onClose: () => void;
}) {
  const queries = useQueryClient();

  async function revoke() {
    if (!item) return;
    await body(
      api.POST('/api/v1/tenants/{tenant}/api-keys/{key_id}/revoke', {
        params: { path: { tenant, key_id: item.key_id }, header: ifMatch(etagOf(item)) },
      }),
    );
    await changed(queries, tenant, 'api_key');
    done(`Key ${item.name} revoked`);
  }

  return (
    <ConfirmAction
      opened={item !== null}
      onClose={onClose}
      title={`Revoke ${item?.name || 'this key'}?`}
      effect={
        <>
          Whoever shows it is refused everywhere within 2 s, and it cannot be brought back.{' '}
          {item?.last_used_at ? (
            <>
              It was last used <RelativeTime at={item.last_used_at} />.
            </>
          ) : (
            'No use of it is known yet; uses show up within a minute.'
          )}{' '}
          To replace a key that is in use, rotate it instead.
        </>
      }
      verb="Revoke key"
      destructive
      action={revoke}
    />
  );
}
