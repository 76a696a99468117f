import { NativeSelect } from '@mantine/core';
import { useState } from 'react';
import type { Key } from '~/api/types';
import { FormDialog } from '~/components/FormDialog';
import type { Created } from './CreatedKey';
import type { KeyRoom } from './room';

const graces = [
  { value: '0', label: 'At once' },
  { value: '3600', label: 'In 1 hour' },
  { value: '86400', label: 'In 1 day' },
  { value: '604800', label: 'In 7 days' },
  { value: '2592000', label: 'In 30 days' },
];

interface Props {
  room: KeyRoom;
  item: Key;
  label: string;
  onClose: () => void;
  onCreated: (created: Created) => void;
}

export function RotateKey({ room, item, label, onClose, onCreated }: Props) {
  const [grace, setGrace] = useState('86400');

  async function rotate() {
    const created = await room.rotate(item, Number(grace));
    // Not awaited, or the form would stay open below the secret.
    room.changed();
    onCreated(created);
  }

  return (
    <FormDialog
      title={`Rotate ${label}`}
      lead="The new key has the same permissions."
      verb="Rotate key"
      onClose={onClose}
      save={rotate}
    >
      {(wrong) => (
        <NativeSelect
          label="The old key expires"
          data={graces}
          value={grace}
          error={wrong('/grace_seconds')}
          onChange={(event) => setGrace(event.currentTarget.value)}
        />
      )}
    </FormDialog>
  );
}
