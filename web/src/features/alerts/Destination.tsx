import { NativeSelect, PasswordInput, Select, TextInput } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { membersQuery, signInOptionsQuery } from '~/api/queries';
import type { Alert } from '~/api/types';
import { choicesOf } from '~/domain/rule';
import type { AlertDraft, Field } from './draft';
import { formatNames } from './versions';

interface Props {
  tenant: string;
  alert: Alert | null;
  draft: AlertDraft;
  field: Field;
  change: (part: Partial<AlertDraft>) => void;
}

export function Destination({ tenant, alert, draft, field, change }: Props) {
  const { format } = draft;
  const kept = alert?.format === format ? (alert.url ?? undefined) : undefined;
  return (
    <>
      <NativeSelect
        label="Send to"
        data={choicesOf(formatNames)}
        {...field('format')}
        onChange={({ currentTarget: { value } }) => {
          change({ format: value as AlertDraft['format'], url: '' });
        }}
      />
      {(format === 'webhook' || format === 'slack') && (
        <TextInput
          label={format === 'slack' ? 'Slack webhook' : 'Webhook'}
          description={
            kept
              ? `Now ${kept}. Leave it empty to keep it`
              : format === 'slack'
                ? 'The URL of an incoming webhook. It is shown to nobody again'
                : 'A public URL. It receives signed JSON by POST, and is shown to nobody again'
          }
          placeholder={
            kept
              ? 'Unchanged'
              : format === 'slack'
                ? 'https://hooks.slack.com/services/…'
                : 'https://hooks.example.com/sluice'
          }
          required={!kept}
          {...field('url')}
        />
      )}
      {format === 'pagerduty' && (
        <PasswordInput
          label="Integration key"
          description="Of a service with the integration Events API V2. It is shown to nobody again"
          placeholder={alert?.format === 'pagerduty' ? 'Unchanged' : '32 letters and digits'}
          required={alert?.format !== 'pagerduty'}
          autoComplete="off"
          {...field('routing_key')}
          error={field('routing_key').error ?? field('url').error}
        />
      )}
      {format === 'email' && <Recipient tenant={tenant} field={field} />}
    </>
  );
}

/** Mail goes to members only, so that nobody else is flooded. */
function Recipient({ tenant, field }: Pick<Props, 'tenant' | 'field'>) {
  const members = useQuery(membersQuery(tenant));
  const { data: options } = useQuery(signInOptionsQuery);
  const noMail = options?.mail === false;
  return (
    <Select
      label="Member"
      description={
        noMail ? 'This installation sends no mail: no mail server is configured' : 'Members whose address is verified'
      }
      placeholder="Choose a member"
      searchable
      disabled={noMail}
      data={(members.data ?? []).filter(({ proven, disabled }) => proven && !disabled).map(({ email }) => email)}
      {...field('email')}
    />
  );
}
