import { Button } from '@mantine/core';
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { changed } from '~/api/changes';
import { api, etagOf } from '~/api/client';
import type { AuditWebhook } from '~/api/types';
import { CodeBlock } from '~/components/CodeBlock';
import { ConfirmAction } from '~/components/ConfirmAction';
import { Facts } from '~/components/Facts';
import { Outcome } from '~/components/Outcome';
import { Card } from '~/components/Page';
import { Query } from '~/components/Query';
import { SecretDialog } from '~/components/SecretDialog';
import { RelativeTime } from '~/components/Time';
import { done, failed } from '~/components/toast';
import { exactNumber } from '~/domain/format';
import { recipe } from '~/features/alerts/recipe';
import { useRole, useTenant } from '~/session';
import styles from '../Settings.module.css';
import { WebhookForm } from './WebhookForm';
import { auditWebhookQuery, isReceived, resultOf, stateOf, waitingOf } from './webhook';

type Open = 'edit' | 'rotate' | 'remove' | null;

export function WebhookCard() {
  const tenant = useTenant();
  const { own } = useRole();
  const webhook = useQuery(auditWebhookQuery(tenant));
  const [open, setOpen] = useState<Open>(null);
  const [secret, setSecret] = useState<string | null>(null);
  const close = () => setOpen(null);
  return (
    <Card title="Webhook of the audit log">
      <Query query={webhook}>
        {(saved) =>
          saved ? (
            <>
              <State webhook={saved} />
              {own && <Acts tenant={tenant} webhook={saved} onOpen={setOpen} />}
              <Confirm tenant={tenant} webhook={saved} open={open} onClose={close} onSecret={setSecret} />
            </>
          ) : (
            <div className={styles.apart}>
              <p className="soft">The audit log is not sent anywhere.</p>
              {own && (
                <Button variant="default" onClick={() => setOpen('edit')}>
                  Add webhook
                </Button>
              )}
            </div>
          )
        }
      </Query>
      {open === 'edit' && (
        <WebhookForm tenant={tenant} webhook={webhook.data ?? null} onSecret={setSecret} onClose={close} />
      )}
      {secret && (
        <SecretDialog title="Signing secret" what="secret" secret={secret} onClose={() => setSecret(null)}>
          <p className="soft">
            Each post has the header <code>Sluice-Signature: t=…,v1=…</code>: <code>v1</code> is the hexadecimal
            HMAC-SHA256, under this secret, of <code>t</code>, a dot and the body.
          </p>
          <CodeBlock label="Check a post in Node.js" code={recipe} />
        </SecretDialog>
      )}
    </Card>
  );
}

function State({ webhook }: { webhook: AuditWebhook }) {
  const { tone, word } = stateOf(webhook);
  const { failures, last_error, last_status, next_attempt_at, oldest_waiting_at, skipped, test } = webhook;
  return (
    <Facts
      facts={{
        State: <Outcome tone={tone}>{word}</Outcome>,
        URL: <code>{webhook.url}</code>,
        'Last received': webhook.succeeded_at ? <RelativeTime at={webhook.succeeded_at} /> : 'Nothing yet',
        Waiting: (
          <>
            {waitingOf(webhook)}
            {oldest_waiting_at && (
              <>
                {' '}
                · the oldest <RelativeTime at={oldest_waiting_at} />
              </>
            )}
          </>
        ),
        'Last attempt': failures > 0 && (
          <>
            {resultOf(last_status, last_error)}
            {next_attempt_at && (
              <>
                {' '}
                · next <RelativeTime at={next_attempt_at} />
              </>
            )}
          </>
        ),
        Skipped: skipped > 0 && `${exactNumber(skipped)}, because they were deleted at the end of their retention`,
        Test: test && <Test test={test} />,
      }}
    />
  );
}

function Test({ test }: { test: NonNullable<AuditWebhook['test']> }) {
  if (test.is_waiting) return <Outcome tone="degraded">Sending</Outcome>;
  return (
    <>
      <Outcome tone={isReceived(test.status) ? 'allowed' : 'denied'}>
        {isReceived(test.status) ? 'Received' : 'Failed'}
      </Outcome>{' '}
      {resultOf(test.status, test.error)}
      {test.ended_at && (
        <>
          {' '}
          · <RelativeTime at={test.ended_at} />
        </>
      )}
    </>
  );
}

interface ActsProps {
  tenant: string;
  webhook: AuditWebhook;
  onOpen: (open: Open) => void;
}

function Acts({ tenant, webhook, onOpen }: ActsProps) {
  const queries = useQueryClient();
  const test = useMutation({
    mutationFn: () => api.post('/api/v1/tenants/{tenant}/audit-webhook/test', { tenant }),
    onSuccess: () => changed(queries, tenant, 'audit_webhook'),
    onError: (error) => failed('Could not send the test', error),
  });
  return (
    <div className={styles.row} style={{ marginTop: 12 }}>
      <Button variant="default" onClick={() => onOpen('edit')}>
        Edit
      </Button>
      <Button
        variant="default"
        loading={test.isPending}
        disabled={webhook.test?.is_waiting}
        onClick={() => test.mutate()}
      >
        Send a test
      </Button>
      <Button variant="default" onClick={() => onOpen('rotate')}>
        New secret …
      </Button>
      <Button variant="default" onClick={() => onOpen('remove')}>
        Remove …
      </Button>
    </div>
  );
}

interface ConfirmProps {
  tenant: string;
  webhook: AuditWebhook;
  open: Open;
  onClose: () => void;
  onSecret: (secret: string) => void;
}

function Confirm({ tenant, webhook, open, onClose, onSecret }: ConfirmProps) {
  const queries = useQueryClient();
  const params = { tenant, etag: etagOf(webhook) };

  async function rotate() {
    const { secret } = await api.post('/api/v1/tenants/{tenant}/audit-webhook/rotate', params);
    await changed(queries, tenant, 'audit_webhook');
    onSecret(secret);
  }

  async function remove() {
    await api.delete('/api/v1/tenants/{tenant}/audit-webhook', params);
    await changed(queries, tenant, 'audit_webhook');
    done('Webhook removed');
  }

  return (
    <>
      <ConfirmAction
        opened={open === 'rotate'}
        onClose={onClose}
        title="Create a new signing secret?"
        effect="Posts are signed with the new secret at once. Update every receiver that verifies signatures."
        verb="Create secret"
        action={rotate}
      />
      <ConfirmAction
        opened={open === 'remove'}
        onClose={onClose}
        title="Remove the webhook?"
        effect={
          webhook.waiting > 0
            ? `${waitingOf(webhook)} that wait are not sent. The audit log itself stays.`
            : 'Later changes are not sent. The audit log itself stays.'
        }
        verb="Remove webhook"
        destructive
        action={remove}
      />
    </>
  );
}
