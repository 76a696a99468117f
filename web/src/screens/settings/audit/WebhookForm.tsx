import { Switch, TextInput } from '@mantine/core';
import { useQueryClient } from '@tanstack/react-query';
import { changed } from '~/api/changes';
import { api, etagOf } from '~/api/client';
import type { AuditWebhook } from '~/api/types';
import { FormDialog } from '~/components/FormDialog';
import { done } from '~/components/toast';
import { useFields } from '~/components/useFields';

interface Props {
  tenant: string;
  webhook: AuditWebhook | null;
  onSecret: (secret: string) => void;
  onClose: () => void;
}

export function WebhookForm({ tenant, webhook, onSecret, onClose }: Props) {
  const queries = useQueryClient();
  const { values, field, change } = useFields({ url: '', is_active: webhook?.is_active ?? true });
  const { url, is_active } = values;

  async function save() {
    if (webhook) {
      const body = { is_active, ...(url !== '' && { url }) };
      await api.patch('/api/v1/tenants/{tenant}/audit-webhook', { tenant, etag: etagOf(webhook), body });
      await changed(queries, tenant, 'audit_webhook');
      done('Webhook saved');
      return;
    }
    const { secret } = await api.post('/api/v1/tenants/{tenant}/audit-webhook', { tenant, body: values });
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
            {...field('url', wrong)}
          />
          <Switch
            label="On"
            description="While it is off, changes wait and are sent later"
            checked={is_active}
            onChange={(event) => change({ is_active: event.currentTarget.checked })}
          />
        </>
      )}
    </FormDialog>
  );
}
