import type { Key } from '~/api/types';
import { ConfirmAction } from '~/components/ConfirmAction';
import { RelativeTime } from '~/components/Time';
import { done } from '~/components/toast';
import type { KeyRoom } from './room';

export function RevokeKey({
  room,
  item,
  label,
  onClose,
}: {
  room: KeyRoom;
  item: Key | null;
  label: string;
  onClose: () => void;
}) {
  async function revoke() {
    if (!item) return;
    await room.revoke(item);
    await room.changed();
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
