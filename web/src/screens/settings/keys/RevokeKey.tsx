import { useQueryClient } from '@tanstack/react-query';
import { changed } from '~/api/changes';
import { api, body, etagOf, ifMatch } from '~/api/client';
import type { Key } from '~/api/types';
import { ConfirmAction } from '~/components/ConfirmAction';
import { RelativeTime } from '~/components/Time';
import { done } from '~/components/toast';

/** Asks before it revokes a key; null: closed. */
export function RevokeKey({
  tenant,
  item,
  label,
  onClose,
}: {
  tenant: string;
  item: Key | null;
  label: string;
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
    done(`Key ${label} revoked`);
  }

  return (
    <ConfirmAction
      opened={item !== null}
      onClose={onClose}
      title={`Revoke ${label}?`}
      effect={
        <>
          Requests with this key are refused within 2 s. This cannot be undone.{' '}
          {item?.last_used_at ? (
            <>
              It was last used <RelativeTime at={item.last_used_at} />.
            </>
          ) : (
            'No use is recorded yet. Uses appear within a minute.'
          )}{' '}
          Rotate a key instead if it is in use.
        </>
      }
      verb="Revoke key"
      destructive
      action={revoke}
    />
  );
}
