import { Button } from '@mantine/core';
import type { Key } from '~/api/types';
import { ActButton } from '~/components/ActButton';
import { IconAlert } from '~/components/icons';
import { done } from '~/components/toast';
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
  async function keep() {
    await room.keep(item);
    await room.changed();
    done(`Key ${label} stays`);
  }
  return (
    <ActButton size="compact-sm" aria-label={`Keep ${label}`} act={keep} failure={`Could not keep ${label}`}>
      Keep
    </ActButton>
  );
}
