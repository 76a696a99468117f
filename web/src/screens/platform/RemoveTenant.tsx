import { TextInput } from '@mantine/core';
import { useState } from 'react';
import { api, etagOf } from '~/api/client';
import type { Tenant } from '~/api/types';
import { FormDialog } from '~/components/FormDialog';
import { done } from '~/components/toast';

interface Props {
  tenant: Tenant;
  onClose: () => void;
  onRemoved: (slug: string) => Promise<void>;
}

/** Removes a tenant. The slug must be typed first, because its checks fail at once and its data is erased later. */
export function RemoveTenant({ tenant, onClose, onRemoved }: Props) {
  const [typed, setTyped] = useState('');

  async function remove() {
    await api.delete('/api/v1/tenants/{tenant}', { tenant: tenant.slug, etag: etagOf(tenant) });
    await onRemoved(tenant.slug);
    done(`Tenant ${tenant.name} removed`);
  }

  return (
    <FormDialog
      title={`Remove ${tenant.name}?`}
      lead="Its keys are refused at once. You can restore it for a while; then everything is erased for good."
      verb="Remove tenant"
      destructive
      disabled={typed !== tenant.slug}
      onClose={onClose}
      save={remove}
    >
      {() => (
        <TextInput
          label={`Type ${tenant.slug} to confirm`}
          data-autofocus
          autoComplete="off"
          value={typed}
          onChange={(event) => setTyped(event.currentTarget.value)}
        />
      )}
    </FormDialog>
  );
}
