import { Checkbox, NativeSelect, SegmentedControl, Textarea, TextInput } from '@mantine/core';
import { useState } from 'react';
import { serverNow } from '~/api/clock';
import type { Permission } from '~/api/types';
import { CapacityNote } from '~/components/CapacityNote';
import { FormDialog } from '~/components/FormDialog';
import { permissionWords } from '~/domain/permissions';
import type { Created } from './CreatedKey';
import type { KeyRoom } from './room';

const days = 86_400_000;
const lives = [
  { value: '', label: 'Never' },
  { value: '30', label: 'In 30 days' },
  { value: '90', label: 'In 90 days' },
  { value: '365', label: 'In a year' },
];

const uses: Record<string, Permission[]> = { Service: ['check'], Automation: ['manage'] };
const custom = 'Custom';

interface Props {
  room: KeyRoom;
  onClose: () => void;
  onCreated: (created: Created) => void;
}

export function NewKey({ room, onClose, onCreated }: Props) {
  const [name, setName] = useState('');
  const [may, setMay] = useState<string[]>(room.tenant ? ['check'] : []);
  const [use, setUse] = useState('Service');
  const [life, setLife] = useState('');
  const [places, setPlaces] = useState('');
  const networks = places.split(/[\s,]+/).filter(Boolean);

  async function create() {
    const created = await room.create({
      name,
      permissions: may as Permission[],
      networks,
      expires_at: life ? new Date(serverNow() + Number(life) * days).toISOString() : null,
    });
    // Not awaited, or the form would stay open below the secret.
    room.changed();
    onCreated(created);
  }

  return (
    <FormDialog
      title={room.tenant ? 'Create an API key' : 'Create a service key'}
      verb="Create key"
      disabled={may.length === 0}
      onClose={onClose}
      save={create}
    >
      {(wrong) => (
        <>
          {room.tenant && <CapacityNote tenant={room.tenant} thing="api_keys" />}
          <TextInput
            label="Name"
            description="The service that uses it: gateway, billing worker"
            required
            data-autofocus
            value={name}
            error={wrong('/name')}
            onChange={(event) => setName(event.currentTarget.value)}
          />
          {room.tenant && (
            <SegmentedControl
              fullWidth
              aria-label="Use"
              data={[...Object.keys(uses), custom]}
              value={use}
              onChange={(chosen) => {
                setUse(chosen);
                setMay(uses[chosen] ?? may);
              }}
            />
          )}
          {(!room.tenant || use === custom) && (
            <Checkbox.Group label="Permissions" value={may} onChange={setMay} error={wrong('/permissions')}>
              {room.permissions.map((one) => (
                <Checkbox key={one} mt="sm" size="sm" value={one} {...permissionWords[one]} />
              ))}
            </Checkbox.Group>
          )}
          <Textarea
            label="Networks"
            description="Where the key may be used from, such as 203.0.113.0/24. Empty: anywhere"
            autosize
            minRows={1}
            value={places}
            error={wrong('/networks') ?? networks.map((_, i) => wrong(`/networks/${i}`)).find(Boolean)}
            onChange={(event) => setPlaces(event.currentTarget.value)}
          />
          <NativeSelect
            label="Expires"
            data={lives}
            value={life}
            error={wrong('/expires_at')}
            onChange={(event) => setLife(event.currentTarget.value)}
          />
        </>
      )}
    </FormDialog>
  );
}
