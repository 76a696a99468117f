import { Button } from '@mantine/core';
import { useMutation } from '@tanstack/react-query';
import type { Key } from '~/api/types';
import { IconAlert } from '~/components/icons';
import { done, failed } from '~/components/toast';
import { plural } from '~/domain/format';
import styles from './keys.module.css';
import type { KeyRoom } from './room';

interface Props {
  room: KeyRoom;
  keys: Key[];
  own: boolean;
  labelOf: (key: Key) => string;
  onRevoke: (key: Key) => void;
}

export function LeftBehind({ room, keys, own, labelOf, onRevoke }: Props) {
  return (
    <div className={styles.left} role="status">
      <p>
        <IconAlert size={15} aria-hidden />
        {plural(keys.length, 'key')} made by people who have left {keys.length === 1 ? 'still works' : 'still work'}.
        They may have a copy.
      </p>
      <ul>
        {keys.map((key) => (
          <li key={key.key_id}>
            <span>
              <strong>{labelOf(key)}</strong>
              <span className="soft"> · {key.created_by?.name}</span>
            </span>
            {own && (
              <span className={styles.row}>
                <Button
                  variant="default"
                  size="compact-sm"
                  aria-label={`Revoke ${labelOf(key)}`}
                  onClick={() => onRevoke(key)}
                >
                  Revoke …
                </Button>
                <Keep room={room} item={key} label={labelOf(key)} />
              </span>
            )}
          </li>
        ))}
      </ul>
    </div>
  );
}

function Keep({ room, item, label }: { room: KeyRoom; item: Key; label: string }) {
  const keeping = useMutation({
    mutationFn: () => room.keep(item),
    onSuccess: async () => {
      await room.changed();
      done(`Key ${label} stays`);
    },
    onError: (error) => failed(`Could not keep ${label}`, error),
  });
  return (
    <Button
      variant="default"
      size="compact-sm"
      aria-label={`Keep ${label}`}
      loading={keeping.isPending}
      onClick={() => keeping.mutate()}
    >
      Keep
    </Button>
  );
}
