import { NativeSelect, PasswordInput, Select, TextInput } from '@mantine/core';
import type { UseFormReturnType } from '@mantine/form';
import { useQuery } from '@tanstack/react-query';
import { membersQuery, signInOptionsQuery } from '~/api/queries';
import type { Alert } from '~/api/types';
import type { AlertDraft } from './draft';
import { formatNames } from './versions';

interface Props {
  tenant: string;
  /** null: a new alert. */
  alert: Alert | null;
  form: UseFormReturnType<AlertDraft>;
  errors: Errors;
}

/** What is wrong with the fields. */
export type Errors = Partial<Record<'format' | 'url' | 'routing_key' | 'email', string>>;

/** Where an alert is sent: the format, and the fields that it needs. */
export function Destination({ tenant, alert, form, errors }: Props) {
  const { values, getInputProps, setFieldValue } = form;
  const { format } = values;
  return (
    <>
      <NativeSelect
        label="Send to"
        data={Object.entries(formatNames).map(([value, label]) => ({ value, label }))}
        {...getInputProps('format')}
        onChange={({ currentTarget: { value } }) => {
          setFieldValue('format', value as AlertDraft['format']);
          setFieldValue('url', value === alert?.format ? (alert.url ?? '') : '');
        }}
        error={errors.format}
      />
      {(format === 'webhook' || format === 'slack') && (
        <TextInput
          label={format === 'slack' ? 'Slack webhook' : 'Webhook'}
          description={
            format === 'slack'
              ? 'The URL of an incoming webhook. It is shown to nobody again'
              : 'A public URL. It receives signed JSON by POST'
          }
          placeholder={
            format === 'slack' ? 'https://hooks.slack.com/services/…' : 'https://hooks.example.com/sluice'
          }
          required
          withAsterisk={false}
          {...getInputProps('url')}
          error={errors.url}
        />
      )}
      {format === 'pagerduty' && (
        <PasswordInput
          label="Integration key"
          description="Of a service with the integration Events API V2. It is shown to nobody again"
          placeholder={alert?.format === 'pagerduty' ? 'Unchanged' : '32 letters and digits'}
          required={alert?.format !== 'pagerduty'}
          withAsterisk={false}
          autoComplete="off"
          {...getInputProps('routing_key')}
          error={errors.routing_key ?? errors.url}
        />
      )}
      {format === 'email' && <Recipient tenant={tenant} form={form} error={errors.email} />}
    </>
  );
}

/** Mail goes to members only, so that nobody else is flooded. */
function Recipient({ tenant, form, error }: Pick<Props, 'tenant' | 'form'> & { error?: string }) {
  const members = useQuery(membersQuery(tenant));
  const { data: options } = useQuery(signInOptionsQuery);
  const noMail = options?.mail === false;
  return (
    <Select
      label="Member"
      description={
        noMail
          ? 'This installation sends no mail: no mail server is configured'
          : 'Members who have proven their address'
      }
      placeholder="Choose a member"
      searchable
      disabled={noMail}
      data={(members.data ?? [])
        .filter(({ proven, disabled }) => proven && !disabled)
        .map(({ email }) => email)}
      {...form.getInputProps('email')}
      error={error}
    />
  );
}
