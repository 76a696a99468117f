import { TextInput } from '@mantine/core';
import { useState } from 'react';
import { api } from '~/api/client';
import { FormDialog } from '~/components/FormDialog';

interface Props {
  tenant: string;
  user: string;
  onClose: () => void;
  /** The erasure has begun; its receipt has this id. */
  onErased: (receipt: string) => void;
}

export function EraseUser({ tenant, user, onClose, onErased }: Props) {
  const [typed, setTyped] = useState('');

  async function erase() {
    const { receipt_id } = await api.post('/api/v1/tenants/{tenant}/users/{user_id}/erase', {
      tenant,
      user_id: user,
      body: { confirm: typed },
    });
    onErased(receipt_id);
  }

  return (
    <FormDialog
      onClose={onClose}
      title={`Erase user ${user}?`}
      lead="Removes every record of this user. This cannot be undone."
      verb="Erase user"
      destructive
      disabled={typed !== user}
      save={erase}
    >
      <TextInput
        label={`Type ${user} to confirm`}
        value={typed}
        data-autofocus
        autoComplete="off"
        onChange={(event) => setTyped(event.currentTarget.value)}
      />
    </FormDialog>
  );
}
