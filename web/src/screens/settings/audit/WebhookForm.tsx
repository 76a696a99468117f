import { Switch, TextInput } from '@mantine/core';
import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { changed } from '~/api/changes';
import { api, etagOf } from '~/api/client';
import type { AuditWebhook } from '~/api/types';
import { FormDialog } from '~/components/FormDialog';
import { done } from '~/components/toast';

interface Props {
  tenant: string;
  webhook: AuditWebhook | null;
  /** Called with a new webhook’s secret, which is shown once. */
  onSecret: (secret: string) => void;
  onClose: () => void;
}

export function WebhookForm({ tenant, webhook, onSecret, onClose }: Props) {
  const queries = useQueryClient();
  const [url, setURL] = useState('');
  const [isActive, setActive] = useState(webhook?.is_active ?? true);

  async function save() {
    const path = { tenant };
    if (webhook) {
      await api.patch('/api/v1/tenants/{tenant}/audit-webhook', {
        ...path,
        etag: etagOf(webhook),
        body: { is_active: isActive, ...(url !== '' && { url }) },
      });
      await changed(queries, tenant, 'audit_webhook');
      done('Webhook saved');
      return;
    }
    const { secret } = await api.post('/api/v1/tenants/{tenant}/audit-webhook', {
      ...path,
      body: { url, is_active: isActive },
    });
    // Not awaited, or the form would stay open below the secret.
    changed(queries, tenant, 'audit_webhook');
    onSecret(secret);
  }

  return (
    <FormDialog
      title={webhook ? 'Webhook of the audit log' : 'Send the audit log to a webhook'}
      lead={webhook ? undefined : 'Sends each change from now on, in order.'}
      verb={webhook ? 'Save' : 'Create webhook'}
      onClose={onClose}
      save={save}
    >
      {(wrong) => (
        <>
          <TextInput
            label="URL"
            description={
              webhook
                ? `Now ${webhook.url}. Leave it empty to keep it`
                : 'A public URL. It receives signed JSON by POST, and is shown to nobody again'
            }
            placeholder={webhook ? 'Unchanged' : 'https://siem.example.com/sluice'}
            required={!webhook}
            data-autofocus
            value={url}
            error={wrong('/url')}
            onChange={(event) => setURL(event.currentTarget.value)}
          />
          <Switch
            label="On"
            description="While it is off, changes wait and are sent later"
            checked={isActive}
            onChange={(event) => setActive(event.currentTarget.checked)}
          />
        </>
      )}
    </FormDialog>
  );
}
